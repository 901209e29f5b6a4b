"""Texts and conversations for the tests of tokenizers."""

import random

TEXTS = [
    "",
    "Hello, world!",
    " leading and trailing ",
    "a  b   c",
    "Call 555-0199 at 12:30, pay 3.14 or 1000000.",
    "don't we'll I'VE they're",
    "def f(x):\n\treturn x**2  # square\n\n\nprint(f'{f(3)=}')\r\n",
    "😀 👩‍👩‍👧‍👦 🇫🇷 👍🏽",
    "中文句子，没有空格。日本語テキスト 한국어",
    "e\u0301 a\u0308 n\u0303o",
    "العربية نص هنا",
    "a\u0000b\u0007c\u001b[0m",
    "zero\u200bwidth\ufeff \u00a0\u3000wide",
    "\ue000\U0010ffff",
    "pneumono" * 300,
    "<|im_end|> typed by somebody",
]


def random_texts(count: int, alphabet: str) -> list[str]:
    chance = random.Random(5)
    return ["".join(chance.choice(alphabet) for _ in range(chance.randint(1, 30))) for _ in range(count)]


MIXED = "abcdeXYZ  \n\t.,;'!?-_()<>|éüß漢字ひ😀\u0301’”—…"


CONVERSATIONS = [
    [("user", "Hi")],
    [("system", "Be brief."), ("user", "  spaced \n\n"), ("assistant", ""), ("user", "12 é 漢 <b> {{ 7*7 }}")],
    [("user", TEXTS[6]), ("assistant", TEXTS[7]), ("user", TEXTS[8])],
]


def messages(pairs: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in pairs]
