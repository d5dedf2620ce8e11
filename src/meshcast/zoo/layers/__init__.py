"""What the models are built of: attention, feed-forward layers, experts, norms, products, layers of images."""
