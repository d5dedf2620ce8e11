"""What training frameworks and their libraries run otherwise than a compiler does: layers apart, casts, copies, norms."""
