"""Pictures for papers and mails: `--plot FILE.svg` or `.png` of the verbs that predict and search, drawn by matplotlib."""
