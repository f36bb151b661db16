"""The next word: public starts from the Brown corpus, and private training on the State of the Union addresses."""
