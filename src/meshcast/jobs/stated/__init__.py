"""Training runs as somebody tells them: rows of published runs and files of jobs, made into questions (`docs/runs.md`)."""
