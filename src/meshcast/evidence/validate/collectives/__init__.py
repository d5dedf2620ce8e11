"""Our error against collectives that others measured: rows, the systems they name, comparison and page."""
