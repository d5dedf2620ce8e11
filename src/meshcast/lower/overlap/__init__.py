"""Communication beside compute, joined or left to the end of a step; and what else `--overlap` asks of a lowered program."""
