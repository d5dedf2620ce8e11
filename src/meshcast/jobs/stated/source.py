"""`StatedSource`: a job's file, read once, and the question that it makes of options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from meshcast.base import AnsweredOnce, InputError, MeshcastError
from meshcast.hardware import Document, read_document
from meshcast.jobs.stated.asking import stated_options
from meshcast.jobs.stated.file import EVERY_KEY, SCHEMA, key_of, read_job
from meshcast.jobs.stated.recomputation import fitting
from meshcast.jobs.stated.target import RunTarget, run_target
from meshcast.options import Options

_SUFFIX = ".toml"
# Flags that a file stands in for: the option of each, and the table or key that says it.
_SAID_BY = {
    "--plan": ("plan", ("plan",)), "--set": ("settings", ("model",)), "--overlap": ("overlap", ("software", "overlap")),
    "--stack": ("stack", ("software",)), "--on": ("on", ("cluster",)), "--devices": ("devices", ("cluster", "devices")),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedSource:
    """The file of a job, which is read when it is asked for."""

    path: Path
    _kept: AnsweredOnce = field(default_factory=AnsweredOnce, repr=False, compare=False)

    @classmethod
    def of(cls, target: object) -> StatedSource | None:
        """That of a target which is the file of a job, by its schema; None of any other."""
        if not isinstance(target, (str, Path)) or not str(target).endswith(_SUFFIX):
            return None
        path = Path(target)
        try:
            data = read_document(path).data if path.is_file() else {}
        except InputError:
            return None  # whose mistakes are told where it is read as a pipeline
        schema = data.get("schema")
        if "schema" not in data and any(isinstance(data.get(table), dict) for table in ("model", "plan")):
            return cls(path=path)  # no other file has such tables: that its schema is missing is told where it is read
        return cls(path=path) if isinstance(schema, str) and schema.startswith(SCHEMA.split("/")[0] + "/") else None

    @property
    def target(self) -> RunTarget:
        """What the file describes, as it can be predicted.

        Raises:
            InputError: The file does not follow the schema, or lacks something.
        """
        return self._kept.answer("target", self._read)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the file does not say and is taken for granted, in one warning; nothing where it says all."""
        taken = self.target.assumptions
        return (f"{self.path.name} does not say, and it is taken for granted: {'; '.join(taken)}",) if taken else ()

    def asked(self, options: Options, memory: Callable[[str, Options], float]) -> tuple[str, Options]:
        """The model that the file is about, and the options with what the file says; what they ask for expressly stays.

        Args:
            options: As they are given.
            memory: Bytes of a device that a model takes with options; asked where the file does not say what is recomputed.

        Raises:
            InputError: The file does not follow the schema, or lacks something.
        """
        target = self.target
        assert target.model is not None
        name = target.model.name
        # Kernels are the stack's, by our models of them: those of a compiler that is at hand are XLA's.
        base = options.of_many
        if target.recomputation_told or "plan" in base.asked or not target.model.planned:
            return name, stated_options(target, base)
        key = ("fitting", repr(base.key))
        fits = self._kept.answer(
            key,
            lambda: fitting(target, lambda run: memory(name, stated_options(run, base)), lambda peak: peak)[0],
        )
        return name, stated_options(fits, base)

    def unsaid_remat(self, given: Options, asked: Options) -> str | None:
        """What is taken to be recomputed, in a plan's word, where neither the file nor the caller says so; else None.

        Args:
            given: The caller's options.
            asked: The same with what the file says (`asked`).
        """
        plan = asked.program.plan
        if self.target.recomputation_told or "plan" in given.asked or plan is None:
            return None
        return str(plan.value.remat)

    @contextmanager
    def blamed(self, options: Options) -> Iterator[None]:
        """Inside, an error that names a flag which nobody has given names the line of the file that stands for it.

        Args:
            options: As they are given; what they ask for expressly is not the file's.
        """
        try:
            yield
        except MeshcastError as error:
            option, key = _SAID_BY.get(error.where or "", ("", ()))
            if key and option not in options.asked:
                document = read_document(self.path)
                error.where = document.place(_named_in(error.message, document, key))
            raise

    def _read(self) -> RunTarget:
        run, document = read_job(self.path)
        target = run_target(run)
        wrong = {what: f"it lacks {what}" for what in target.missing}
        wrong |= {what: f"the plan contradicts itself: {what.partition(': ')[2]}" for what in target.contradictions}
        if not wrong:
            return target
        places = {
            what: document.place(key_of(target.blamed[what])) if what in target.blamed else str(self.path)
            for what in wrong
        }
        first, *others = wrong
        also = "".join(f"\n  also {places[what]}: {wrong[what]}" for what in others)
        said = wrong[first].replace("it lacks", "the job lacks", 1)
        raise InputError(f"{said}{also}", where=places[first], fix=target.fixes.get(first, EVERY_KEY))


def _named_in(message: str, document: Document, table: tuple[str, ...]) -> tuple[str, ...]:
    """The key of a file's table that a message names as `key=value`, or the table."""
    said = document.data.get(table[0])
    names = re.findall(r"([a-z_]+)=", message) if isinstance(said, dict) and len(table) == 1 else []
    return next(((*table, name) for name in names if name in said), table)  # type: ignore[operator]
