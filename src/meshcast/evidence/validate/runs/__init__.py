"""Training runs that others measured and published, predicted and compared: `validate runs`."""
