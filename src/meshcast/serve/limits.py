"""How much of everything one server takes, holds and waits for: a visitor may be slow, mistaken or hostile."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.base import READER_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLimits:
    """The limits of a server.

    Attributes:
        upload_bytes: Of one program that is dropped on the page.
        body_bytes: Of any other request.
        body_s: Seconds within which a request must have arrived.
        programs_bytes: Of all programs that are held; the one that was used least recently goes first.
        answer_s: Seconds that one prediction may take.
        memory_bytes: Of address space that a worker may have.
        worker_bytes: Of memory that a worker may hold between questions; one with more is replaced.
        wait_s: Seconds that a request is held open for its answer, at the most.
        waiting: Questions that wait for a worker; more are refused.
        answers: Answers that are held.
        answers_bytes: Of all of them.
        searches: Searches that run at once.
        points: Points of a run that one answer has.
    """

    upload_bytes: int = 32 * 2**20
    body_bytes: int = 256 * 2**10
    body_s: float = 30.0
    programs_bytes: int = 128 * 2**20
    answer_s: float = 120.0
    memory_bytes: int = READER_BYTES
    worker_bytes: int = 1536 * 2**20
    wait_s: float = 20.0
    waiting: int = 64
    answers: int = 512
    answers_bytes: int = 64 * 2**20
    searches: int = 2
    points: int = 5000
