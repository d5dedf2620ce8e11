"""The passes of a model that answers requests as an object for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshcast.jobs.program.tables import shown_json

if TYPE_CHECKING:
    from meshcast.jobs.serving.job import ServingJob

SERVING_SCHEMA = "meshcast.serving/1"


def serving_json(job: ServingJob, *, kernels: bool) -> dict[str, Any]:
    """The passes of requests as an object of schema `meshcast.serving/1`.

    Args:
        job: The model that answers.
        kernels: Whether programs are told by their kernels (`meshcast.kernels/1`) or by their ops (`meshcast.workload/1`).
    """
    asked = job.passes
    return {
        "schema": SERVING_SCHEMA,
        "name": job.builder.name,
        "batch": asked.batch,
        "prompt_tokens": asked.prompt,
        "output_tokens": asked.output,
        "chunk_tokens": asked.chunk,
        "passes": [
            {
                "name": name,
                "times": each.times,
                "batch": each.batch,
                "tokens": each.tokens,
                "past": each.past,
                "program": shown_json(program.run, kernels=kernels),
            }
            for name, each, program in asked.named()
        ],
    }
