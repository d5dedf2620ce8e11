"""What users of a served model notice: how long until the first token, how long for each one after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshcast.base import format_bytes, format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A batch of requests that start together: a prompt each, then a token each at a time.

    Attributes:
        batch: Requests, on all devices together.
        cache_bytes: Keys and values on each device, room for the whole context.
        prompt_tokens: Tokens of a prompt; None where no prompt was predicted.
        output_tokens: Tokens that each request is answered with, the first one of them by the prompt's own pass; None
            where one step was predicted alone.
        ttft_s: Time to first token: the pass over the prompts.
        tpot_s: Time per output token after the first: a decoding step over a full cache.
        passes: That the prompts are read in; None where one pass was predicted alone.
        chunk_tokens: Tokens of a pass at most, for each share of the batch; likewise.
        model_flops: The model's own matrix FLOPs of a device for whole requests, `sum of the prompts' passes +
            (output - 1) x a decoding step`, as `request_s` adds up their times; None where one pass was predicted alone.
    """

    batch: int
    cache_bytes: int
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    passes: int | None = None
    chunk_tokens: int | None = None
    model_flops: float | None = None

    @property
    def request_s(self) -> float | None:
        """From prompt to last token, `ttft + (output - 1) tpot`."""
        if self.ttft_s is None or self.tpot_s is None or self.output_tokens is None:
            return None
        return self.ttft_s + (self.output_tokens - 1) * self.tpot_s

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens put out a second for the whole batch: over whole requests, or in decoding steps alone."""
        if self.request_s is not None and self.output_tokens is not None:
            return self.batch * self.output_tokens / self.request_s
        return self.batch / self.tpot_s if self.tpot_s else None

    @property
    def prompt_tokens_per_s(self) -> float | None:
        """Tokens of prompts read a second."""
        return self.batch * self.prompt_tokens / self.ttft_s if self.ttft_s and self.prompt_tokens else None

    def to_json(self) -> dict[str, Any]:
        """Under `serving` of a prediction."""
        return {
            "batch": self.batch,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "ttft_s": self.ttft_s,
            "tpot_s": self.tpot_s,
            "request_s": self.request_s,
            "tokens_per_s": self.tokens_per_s,
            "prompt_tokens_per_s": self.prompt_tokens_per_s,
            "cache_bytes": self.cache_bytes,
            "prefill_passes": self.passes,
            "prefill_chunk_tokens": self.chunk_tokens,
            "model_flops": self.model_flops,
        }

    def rows(self) -> list[tuple[str, str]]:
        """For people."""
        rows = []
        if self.ttft_s is not None and self.prompt_tokens_per_s is not None:
            read = f"{self.batch} x {self.prompt_tokens:,} tokens, {self.prompt_tokens_per_s:,.0f} tokens/s"
            if self.passes is not None and self.passes > 1:
                read += f", in {self.passes} passes of up to {self.chunk_tokens:,}"
            rows.append(("time to first token", f"{format_time(self.ttft_s)} ({read})"))
        if self.tpot_s:
            step = f"{self.batch} at a time, {self.batch / self.tpot_s:,.0f} tokens/s"
            rows.append(("time per output token", f"{format_time(self.tpot_s)} ({step})"))
        if self.request_s is not None:
            whole = f"{format_time(self.request_s)} for {self.output_tokens:,} tokens"
            rows.append(("whole requests", f"{whole}, {self.tokens_per_s:,.0f} tokens/s for all of them"))
        rows.append(("KV cache", f"{format_bytes(self.cache_bytes)} on each device"))
        return rows
