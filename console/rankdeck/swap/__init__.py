"""The swap proof: is it the program or the node? Plans runs, carries them out, judges them."""
