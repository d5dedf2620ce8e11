"""What goes over the wire: requests as pydantic reads them, here and nowhere else. Names, never paths."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from meshcast.serve.usual import USUAL

# A name of a catalogue: no separators of paths, no dots in front, no colon of `module:function`.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
# What a model or hardware may be called besides: as people write it, or by its place on Hugging Face. Looked up, never opened.
CalledName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._ /-]{0,99}$")]
PlanText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9=,+._-]{0,400}$")]
MeshText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9=,_]{0,200}$")]
SettingText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9,.+_-]{1,64}$")]
AnswerPart = Literal[
    "summary", "details"
]  # of a prediction's sections: what is known at once, and what has to be drawn
RunKind = Literal["exploration", "comparison"]  # of run folders
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class PageRequest(BaseModel):
    """A request; what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HowPredicted(PageRequest):
    """How something is predicted: what Predict's last controls set, of a configuration and of a search alike."""

    fidelity: Name = "auto"
    network: Literal["alpha-beta", "flow", "astra", "astra-aware"] = "alpha-beta"
    lowering: Literal["modelled", "auto"] = Field(
        default="modelled", description="auto: the real compiler where it is installed, which takes some ten seconds."
    )
    clocks: Literal["sustained", "burst"] = "sustained"
    stack: Name | None = None

    def how(self) -> dict[str, Any]:
        """How it is predicted, as fields of another request."""
        return {name: getattr(self, name) for name in HowPredicted.model_fields}

    def said(self) -> dict[str, str]:
        """How it is predicted, as options of the tool.

        What is as usual is not said, as a stack may bring its own; where kernels come from is, as searches and predictions differ
        in what is usual there.
        """
        given = self.how()
        return {
            name: value for name, value in given.items() if name == "lowering" or value not in (None, USUAL.get(name))
        }


class Configuration(HowPredicted):
    """One thing to predict: a model, a Hugging Face configuration or a program, on some hardware, under a plan."""

    model: CalledName | None = Field(default=None, description="A model of the zoo, by its name or another.")
    config: str | None = Field(default=None, max_length=65536, description="The text of a Hugging Face config.json.")
    program: Digest | None = Field(
        default=None, description="A program, by the digest that its upload was answered with."
    )
    on: CalledName = Field(default="h100-sxm", description="A device or a cluster of the catalogue.")
    devices: int | None = Field(default=None, ge=1, le=2**20, description="How many devices.")
    plan: PlanText = Field(default="", description="How a model is shared out, as --plan takes it.")
    mesh: MeshText = Field(default="", description="Sizes of a program's mesh, as --mesh takes them.")
    settings: dict[Name, SettingText] = Field(default_factory=dict, max_length=80, description="As --set takes them.")
    levers: bool = Field(default=False, description="Whether changes are tried to see what would help most.")

    @model_validator(mode="after")
    def _one_target(self) -> Configuration:
        if sum(each is not None for each in (self.model, self.config, self.program)) != 1:
            raise ValueError("give one of model, config and program")
        return self

    def command(self, program: str | None = None) -> list[str]:
        """The command line that asks the same."""
        target = self.model or (f"{program}.mlir" if self.program is not None else "config.json")
        words = ["meshcast", "report", str(target), "--on", self.on]
        for name, value, usual in (
            ("plan", self.plan, ""), ("devices", None if self.plan else self.devices, None), ("mesh", self.mesh, ""),
            ("fidelity", self.fidelity, "auto"),
            ("network", self.network, "alpha-beta"), ("lowering", self.lowering, "auto"),
            ("clocks", self.clocks, "sustained"), ("stack", self.stack, None),
        ):  # fmt: skip
            words += [f"--{name}", str(value)] if value != usual else []
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        return words


class SearchRequest(HowPredicted):
    """A search over plans: everything that shares a model out over some devices, on one or several kinds of hardware."""

    model: CalledName | None = None
    config: str | None = Field(default=None, max_length=65536)
    on: list[CalledName] = Field(min_length=1, max_length=8)
    devices: list[Annotated[int, Field(ge=1, le=2**20)]] = Field(min_length=1, max_length=12)
    settings: dict[Name, SettingText] = Field(default_factory=dict, max_length=80)
    fixed: PlanText = Field(default="", description="Keys of the plan that are decided.")
    objectives: list[Literal["time", "throughput", "energy", "memory", "devices"]] = Field(
        default=["time"], min_length=1, max_length=3
    )
    top: int = Field(default=10, ge=1, le=100)

    @model_validator(mode="after")
    def _one_model(self) -> SearchRequest:
        if (self.model is None) == (self.config is None):
            raise ValueError("give a model or a config")
        return self


class ErrorBody(BaseModel):
    """The tool's own error object."""

    code: str
    message: str
    where: str | None = None
    fix: str | None = None


class ErrorAnswer(BaseModel):
    """An error, as `--json` prints it."""

    error: ErrorBody


class Pending(BaseModel):
    """An answer that is not there yet."""

    job: str = Field(description="Its number: GET /api/jobs/{job} has the answer when it is there.")
    state: Literal["waiting", "running"]
    seconds: float = Field(description="Since it was asked for.")
    said: str = Field(default="", description="How far the work is, in its own words.")


class Made(BaseModel):
    """A report that was made."""

    url: str = Field(description="Where it is, as long as the server holds it.")


class Uploaded(BaseModel):
    """A program that the server holds for a while."""

    program: str = Field(description="Its digest, which configurations name it by.")
    name: str
    devices: int
    mesh: dict[str, int]
    bytes: int


class RunConfig(BaseModel):
    """What a run was started over, where that was no model of the zoo."""

    config: str = Field(description="The text of a Hugging Face config.json.")


class SearchState(BaseModel):
    """A search, running or ended, or a comparison; all of it is in its run folder."""

    name: str
    kind: RunKind = "exploration"
    state: Literal["running", "done", "stopped", "failed"]
    seconds: float
    said: str = ""
    share: float | None = Field(
        default=None, description="Of the search's time that has passed, as far as that is known."
    )
    title: str = ""
    objectives: list[str] = Field(default_factory=list)
    points: list[dict[str, Any]] = Field(default_factory=list)
    found: int = Field(
        default=0, description="Points that have been predicted, of which `points` may be the last ones."
    )
    summary: dict[str, Any] | None = None
    error: ErrorBody | None = None
