"""Models that answer: a prompt's pass, a decoding step, or with `--set mode=serve` both, as users notice them."""

from meshcast.jobs.serving.answering import predict_requests as predict_requests
from meshcast.jobs.serving.answering import with_noticed as with_noticed
from meshcast.jobs.serving.chunks import CHUNK as CHUNK
from meshcast.jobs.serving.chunks import chunk_of as chunk_of
from meshcast.jobs.serving.passes import OUTPUT as OUTPUT
from meshcast.jobs.serving.passes import PROMPT as PROMPT
from meshcast.jobs.serving.passes import request_lengths as request_lengths
