"""Varied prompts: languages, code, numbers, lists, dialogue, white space, short and long."""

from __future__ import annotations

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "1, 1, 2, 3, 5, 8, 13,",
    "Q: What is photosynthesis?\nA:",
    "Dear Sir or Madam,\n\nI am writing to",
    "Die Hauptstadt von Deutschland ist",
    "El perro y el gato son",
    "SELECT name, age FROM users WHERE",
    "The quick brown fox jumps over the lazy dog. The",
    "<|im_start|>user\nWhat is the capital of Italy?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n",
    "In mathematics, a prime number is",
    "import numpy as np\n\n# Compute the mean of an array\n",
    "Ingredients:\n- 2 eggs\n- 1 cup of flour\n-",
    "Monday, Tuesday, Wednesday,",
    "The history of the Roman Empire began",
    "To be, or not to be, that is",
    "Water boils at a temperature of",
    "<html>\n<head>\n<title>",
    '{"name": "Alice", "age": 30, "city":',
    "La Révolution française a commencé en",
    "Roses are red, violets are",
    "The three laws of thermodynamics are:",
    "A",
    "\n\n",
    "    indented text\n    follows",
    "Emoji: \U0001f600 \U0001f680 and",
    "She said, \u201cI don\u2019t know,\u201d and then",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "The opposite of hot is",
    "How many legs does a spider have? A spider has",
    "Translate to French: Good morning ->",
    "The first president of the United States was",
    "Gravity is the force that",
    "for (int i = 0; i < 10; i++) {",
    "Summary: The article discusses",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the",
    "3 + 4 = 7\n5 + 6 = 11\n8 + 9 =",
    "The planets of the solar system, in order from the sun, are Mercury,",
    "Breathing slowly, she opened the old wooden door and saw " * 6,
    "Chapter 1\n\nThe night was dark and the wind was",
    "Python is a programming language that",
    "My favourite food is",
)
OUTPUT_TOKENS = 64
MIN_GAP = 1e-3

# For Gemma 3, whose layers but every sixth see 512 tokens: two prompts are longer than that.
GEMMA_PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Die Hauptstadt von Deutschland ist",
    "Emoji: \U0001f600 \U0001f680 and \u65e5\u672c\u8a9e, then",
    "3 + 4 = 7\n5 + 6 = 11\n8 + 9 =",
    "Q: How many legs does a spider have?\nA: A spider has",
    "Stock list.\n"
    + "".join(
        f"Shelf {n}: {n * 7 % 31} boxes of {('nails', 'paint', 'rope', 'glass')[n * 5 % 4]}, "
        f"{n * n % 17} kg each.\n"
        for n in range(1, 41)
    )
    + "Shelf 41:",
    "".join(
        f"On day {n} the {('fox', 'crow', 'bear')[n % 3]} met the "
        f"{('miller', 'smith', 'baker', 'weaver', 'monk')[n * 3 % 5]} and said: "
        f"\u201c{('Come', 'Wait', 'Look', 'Listen')[n * n % 4]}, friend!\u201d "
        for n in range(1, 36)
    )
    + "On day 36 the",
)
GEMMA_OUTPUT_TOKENS = 32
