"""A program on chosen hardware: `Run`, from which every answer about it is worked out."""
