"""Varied text for comparing tokenizers: the same lines for the same seed, on every machine."""

import random
import unicodedata

WORDS = """the of and to in a is that for it was on are as with his they at be this from have or by one had not but what
all were when we there can an your which their said if do will each about how up out them then she many some so these
would other into has more her two like him see time could no make than first been its who now people my made over did
down only way find use may water long little very after words called just where most know get through back much before
go good new write our me man too any day same right look think also around another came come work three word because
does part even place well such here take why help put different away again off went old number great tell men say small
every found still between name should home big give air line set own under read last never us left end along while might
next sound below saw something thought both few those always looked show large often together asked house don't world
going want school important until form food keep children feet land side without boy once animal life enough took
sometimes four head above kind began almost live page got earth need far hand high year mother light country father let
night picture being study second book carry science eat room friend idea fish mountain north base hear horse cut sure
watch colour face wood main Internationalization antidisestablishmentarianism quantization tokenizer perplexity""".split()

CONTRACTIONS = [
    "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'M", "'LL", "'lL", "'D", "’s",
    "'\u017f", "'x", "''s", "'", "' s", "'s's", "'ll've",
]

CODE = [
    "def {0}(self, {1}=None):\n    return {2} + {3}\n",
    "for (int {0} = 0; {0} < {n}; ++{0}) {{\n\t{1}[{0}] *= {2};\n}}",
    "if {0} != {1} and {2}[{n}:] == '{3}':\n        raise ValueError(f\"{{{0}!r}}\")",
    "#include <{0}.h>\r\n#define {1} {n}\r\n",
    '{{"{0}": [{n}, {m}.5e-{k}], "{1}": null, "{2}": "\\u00e9\\n"}}',
    "SELECT {0}, COUNT(*) FROM {1} WHERE {2} >= {n};",
    "x_{n}={0}->{1}.{2}(&{3}[0x{n:x}]);// {0}",
    '<div class="{0}-{1}">&nbsp;{2}</div>',
    "let {0}: Vec<{1}> = vec![{n}; {m}];",
    "\t\t\t\treturn&{0}::{1}<{2}>();",
    "git commit -m '{0}: {1}' && cd ../{2}/{3}_{n}.tar.gz",
    "https://example.org/{0}?{1}={n}&{2}=%20#{3}",
    "    \n        {0} = lambda {1}: {1} ** {k}\n\n\n",
    "/* {0} */ /** {1} **/ //{2}\n///{3}",
    "{0}@{1}.org <{2}> $" "{n}.{m} #{3} ^_^ ~/{0}",
]

FOREIGN = [
    "Ελληνικά κείμενα ΜΕ ΚΕΦΑΛΑΊΑ", "Съешь ещё этих мягких французских булок", "ЩЁЛК ЮЖНО-ЭФИОПСКИЙ",
    "אבגד הוזח טיכל שָׁלוֹם", "السلام عليكم ورحمة الله", "مُحَمَّدٌ رَسُولٌ", "لغة عربية ١٢٣٤٥ ۴۵۶",
    "नमस्ते दुनिया क्षत्रिय कृपया", "हिन्दी में १२३४ अंक", "বাংলা ভাষা আমার", "தமிழ் மொழி",
    "ไทยไม่มีช่องว่างระหว่างคำ", "ภาษาไทย๑๒๓", "한국어 문장입니다", "\u1112\u1161\u11ab\u1100\u116e\u11a8",
    "日本語の文章、カタカナとひらがな。", "ｶﾀｶﾅ ＦＵＬＬ ｗｉｄｔｈ １２３", "漢字仮名交じり文", "我们在北京吃饭，然后回家。", "繁體中文測試「引號」", "人工智能2024年发展",
    "Tiếng Việt có dấu", "Tie\u0302\u0301ng Vie\u0323\u0302t", "naïve café Ångström",
    "nai\u0308ve cafe\u0301 A\u030angstro\u0308m", "Straße GROẞ ﬁne ﬂow", "İstanbul ıssız", "Dž ǅ ǆ Lj ǈ",
    "ქართული ენა", "ᲥᲐᲠᲗᲣᲚᲘ", "አማርኛ ቋንቋ", "ខ្មែរ", "မြန်မာ", "བོད་སྐད", "ᠮᠣᠩᠭᠣᠯ\u180eᠠ", "ꙮ многоочитый",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛", "ʻOkina ʼeʼ ˈstress", "aªoº", "Ⅷ ⅷ ½ ¾ ² ³ ① ⑳ ㊿ 〇 三",
]

EMOJI = [
    "😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "1️⃣", "❤️‍🔥", "🧑🏿‍🚀", "☺", "☺️", "🤷‍♀️",
    "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "💩!", "🦜s", "™️", "©",
]

SPACES = [
    " ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", " \n", "\n ", " \t ",
    "\u00a0", "\u2003", "\u3000", "\u2028", "\u2029", "\u0085", "\u180e", "\u200b", "\u202f", "\u1680",
    "\x0b", "\x0c", "\ufeff", " " * 17, "\t" * 9, "\n" * 5, " \u00a0 ",
]

PUNCTUATION = list(".,;:!?-_()[]{}<>/\\|@#$%^&*+=~`\"'") + [
    "...", "--", "—", "«", "»", "„", "“", "”", "‘", "’", "…", "¿", "¡", "!!", "?!", "://", "->", "=>", "::",
    "/*", "*/", "</", "/>", "$$", "€", "£", "¥", "₿", "±", "×", "÷", "≤", "∑", "∫", "→", "█", "░", "▁",
    "\ufffd", "\ufffe", "\ue000", "\U0010ffff",
]

# Assigned since Unicode 3.2, so that the age of a library's tables does not decide; and later scripts that are settled.
LATER = [
    (0x1E900, 0x1E943),
    (0x10D00, 0x10D27),
    (0x16E40, 0x16E9A),
    (0x30000, 0x3134A),
    (0x1F300, 0x1F6D2),
    (0x1F900, 0x1F9CB),
    (0xA720, 0xA787),
    (0x1C80, 0x1C88),
]
POOL = [c for c in range(0x20, 0x2FA1E) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")]
POOL += [c for low, high in LATER for c in range(low, high + 1)]


def prose(r):
    words = [r.choice(WORDS) for _ in range(r.randint(3, 25))]
    words = [w.capitalize() if r.random() < 0.15 else w.upper() if r.random() < 0.05 else w for w in words]
    words = [w + r.choice(CONTRACTIONS) if r.random() < 0.1 else w for w in words]
    words = [w + r.choice(",.;:!?") if r.random() < 0.12 else w for w in words]
    return " ".join(words) + r.choice([".", "!", "?", "", "\n", " "])


def code(r):
    words = [
        r.choice([str.lower, str.upper, str.title])(r.choice(WORDS)).replace("'", "") + r.choice(["", "_", "Id", "_t"])
        for _ in range(4)
    ]
    return "".join(
        r.choice(CODE).format(*words, n=r.randint(0, 99999), m=r.randint(0, 999), k=r.randint(0, 20))
        for _ in range(r.randint(1, 3))
    )


def numbers(r):
    digits = r.choice(["0123456789"] * 4 + ["٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "²³¹½ⅧⅣ①"])
    return "".join(
        "".join(r.choice(digits) for _ in range(r.randint(1, 12)))
        + r.choice(["", " ", ".", ",", "-", "e", "x", "  ", "\n", "'s"])
        for _ in range(r.randint(1, 8))
    )


def controls(r):
    return "".join(
        chr(r.choice([*range(0x20), 0x7F, *range(0x80, 0xA0)])) if r.random() < 0.3 else r.choice(WORDS)
        for _ in range(r.randint(1, 12))
    )


def random_unicode(r):
    return "".join(chr(r.choice(POOL)) for _ in range(r.randint(1, 40)))


def mixture(r):
    kinds = [
        WORDS,
        CONTRACTIONS,
        FOREIGN,
        EMOJI,
        SPACES,
        SPACES,
        PUNCTUATION,
        PUNCTUATION,
        list("0123456789"),
        list("ABCxyz"),
    ]
    return "".join(r.choice(r.choice(kinds)) for _ in range(r.randint(1, 30)))


def repeats(r):
    return r.choice(
        [r.choice(WORDS), r.choice(PUNCTUATION), r.choice(SPACES), r.choice(EMOJI), r.choice("aAé漢0")]
    ) * r.randint(2, 60)


def combining(r):
    marks = [chr(c) for c in range(0x300, 0x370)] + ["\u0951", "\u064b", "\u05b0", "\u20dd", "\ufe0f", "\u200d"]
    return "".join(
        r.choice(["a", "E", "n", "ñ", "क", "ب", " ", "1", "-"])
        + "".join(r.choice(marks) for _ in range(r.randint(0, 3)))
        for _ in range(r.randint(1, 15))
    )


def corpus(n_lines, special=(), seed=7):
    """n_lines strings; `special` are tokens to be strewn into one line of eight, also cut short or run together."""
    r = random.Random(seed)
    kinds = [
        prose,
        prose,
        code,
        code,
        numbers,
        mixture,
        mixture,
        repeats,
        combining,
        controls,
        random_unicode,
        lambda r: " ".join(r.choice(FOREIGN) for _ in range(r.randint(1, 5))),
        lambda r: r.choice(["", " "]).join(r.choice(EMOJI + WORDS) for _ in range(8)),
    ]
    lines = ["", " ", "  ", "\n", "a", "'s", " 's", "\u0000"]
    while len(lines) < n_lines:
        line = r.choice(kinds)(r)
        if special and r.random() < 0.125:
            for _ in range(r.randint(1, 4)):
                token = r.choice(special)
                token = token[:-1] if r.random() < 0.1 else token[1:] if r.random() < 0.05 else token
                at = r.randint(0, len(line))
                line = line[:at] + token + line[at:]
        lines.append(line)
    return lines
