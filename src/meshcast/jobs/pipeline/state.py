"""The state of a pipeline's hardware, as each of its programs sees it on the devices that it runs on.

A program of n devices has a copy on every n devices in a row of its stage. What holds for the links of all devices, and
what others send, reaches every copy, as far as the program spans the level; the state of one device reaches the copy
that the device is in, under the number that it has there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from meshcast.hardware import Conditions, LinkCondition
from meshcast.jobs.program.run import Run

# What is known of one device: its speed, its kind, or the state of its links.
DeviceState = float | str | LinkCondition
# Devices in a row of which some are in a state of their own: (place among them, state).
Local = tuple[tuple[int, DeviceState], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareState:
    """Conditions, told apart by whom they concern.

    Attributes:
        everyone: The links of all devices, and background traffic.
        single: What is known of single devices, by their number; nothing of healthy ones.
    """

    everyone: Conditions
    single: Mapping[int, tuple[DeviceState, ...]]

    @classmethod
    def of(cls, conditions: Conditions) -> HardwareState:
        """The conditions told apart: those of all devices alike, and those of single devices."""
        single: defaultdict[int, list[DeviceState]] = defaultdict(list)
        for device, speed in conditions.speed.items():
            if speed != 1:
                single[device].append(float(speed))
        for device, kind in conditions.kinds.items():
            single[device].append(kind)
        for link in conditions.links:
            if link.device is not None:
                single[link.device].append(replace(link, device=None))
        everyone = Conditions(
            links=tuple(link for link in conditions.links if link.device is None), background=conditions.background
        )
        return cls(everyone=everyone, single={device: tuple(single[device]) for device in sorted(single)})

    def around(self, first: int, count: int) -> Local:
        """The conditions of some neighbouring devices."""
        found = ((place, self.single.get(first + place, ())) for place in range(count))
        return tuple((place, state) for place, states in found for state in states)

    def linked(self) -> tuple[int, ...]:
        """The devices whose links are in a state of their own."""
        return tuple(
            device
            for device, states in self.single.items()
            if any(isinstance(state, LinkCondition) for state in states)
        )


def copies(local: Local, devices: int) -> tuple[Local, ...]:
    """What the copies of a program of so many devices see of a row of devices; those that see nothing are left out."""
    found: defaultdict[int, list[tuple[int, DeviceState]]] = defaultdict(list)
    for place, state in local:
        found[place // devices].append((place % devices, state))
    return tuple(tuple(states) for states in found.values())


def in_state(run: Run, everyone: Conditions, local: Local = ()) -> Run:
    """A program's run on devices in this state; of links, on the levels that it spans."""
    spanned = {level.name for level in run.cluster.for_devices(run.devices).levels}
    own = tuple(replace(state, device=place) for place, state in local if isinstance(state, LinkCondition))
    seen = Conditions(
        speed={place: state for place, state in local if isinstance(state, float)},
        kinds={place: state for place, state in local if isinstance(state, str)},
        links=tuple(link for link in (*everyone.links, *own) if link.level in spanned),
        background={level: share for level, share in everyone.background.items() if level in spanned},
    )
    return run if seen == run.options.network.conditions else replace(run, options=run.options.having(conditions=seen))
