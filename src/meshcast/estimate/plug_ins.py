"""Estimators of other packages that go wrong: told as an error that names the plug-in, and not as a bug of ours."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from meshcast.base import MeshcastError, UnsupportedError
from meshcast.estimate.estimator import Estimates, Estimator, Support
from meshcast.hardware import Device
from meshcast.lower import Kernel


def asked_support(estimator: Estimator, kernel: Kernel, device: Device) -> Support:
    """Whether an estimator answers for a kernel.

    Raises:
        UnsupportedError: It is a plug-in, and raised something or gave something else.
    """
    try:
        found = estimator.supports(kernel, device)
    except Exception as error:
        if not _is_its_fault(estimator, error):
            raise
        raise _raised(estimator, error, kernel) from error
    if not isinstance(found, Support):
        raise _wrong_kind(estimator, "supports", "Support", found)
    return found


def asked_estimates(estimator: Estimator, kernels: Sequence[Kernel], device: Device) -> Estimates:
    """An estimator's answers for kernels.

    Raises:
        UnsupportedError: It is a plug-in, and raised something or gave something else.
    """
    try:
        found = estimator.estimate(kernels, device)
    except Exception as error:
        if not _is_its_fault(estimator, error):
            raise
        raise _raised(estimator, error, _culprit(estimator, kernels, device)) from error
    if not isinstance(found, Estimates):
        raise _wrong_kind(estimator, "estimate", "Estimates", found)
    return found


def is_plug_in(estimator: object) -> bool:
    """Whether an estimator comes from another package."""
    return type(estimator).__module__.partition(".")[0] != __name__.partition(".")[0]


def _is_its_fault(estimator: Estimator, error: Exception) -> bool:
    """Whether an error is a plug-in's, and not yet one for users; one of our own code is a bug of ours."""
    return is_plug_in(estimator) and not isinstance(error, MeshcastError)


def _raised(estimator: Estimator, error: Exception, kernel: Kernel | None) -> UnsupportedError:
    frames = traceback.extract_tb(error.__traceback__)
    at = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else type(estimator).__module__
    what = "kernels that it answers for one by one" if kernel is None else f"the kernel {kernel.name}"
    if kernel is not None and kernel.location:
        what += f" ({kernel.location})"
    said = f": {error}" if str(error) else ""
    return UnsupportedError(
        f"the plug-in {estimator.name!r} ({_class(estimator)}) raised {type(error).__name__}{said}, asked about {what}",
        where=at,
        fix="choose another fidelity, or mend the plug-in",
    )


def _wrong_kind(estimator: Estimator, method: str, wanted: str, found: object) -> UnsupportedError:
    return UnsupportedError(
        f"the estimator {estimator.name!r} ({_class(estimator)}) gave {type(found).__name__} from {method}, not {wanted}",
        where=estimator.name,
        fix="choose another fidelity, or mend the plug-in",
    )


def _class(estimator: Estimator) -> str:
    return f"{type(estimator).__module__}.{type(estimator).__qualname__}"


def _culprit(estimator: Estimator, kernels: Sequence[Kernel], device: Device) -> Kernel | None:
    """The first kernel that a plug-in fails with alone; None where it fails with several of them together."""
    for kernel in kernels:
        try:
            estimator.estimate([kernel], device)
        except Exception:
            return kernel
    return None
