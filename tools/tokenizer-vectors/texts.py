"""The strings that the tokenizer vectors are made of, and a small text to train vocabularies on."""

SCRIPTS = [
    "The quick brown fox jumps over the lazy dog, doesn't it?",
    "Zażółć gęślą jaźń. Ångström, naïve café, Straße, œuvre, ŒUVRE.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία· Ὦ ξεῖν’, ἀγγέλλειν",
    "نص حكيم له سر قاطع وذو شأن عظيم، مكتوب على ثوبٍ أخضر.",
    "דג סקרן שט בים מאוכזב ולפתע מצא לו חברה. שָׁלוֹם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน",
    "天地玄黃,宇宙洪荒。日月盈昃,辰宿列張。",
    "机器学习模型在多核处理器上的推理速度取决于内存带宽。",
    "いろはにほへと ちりぬるを。カタカナと漢字、ハンカクも混ぜる。",
    "다람쥐 헌 쳇바퀴에 타고파. 한국어 문장 분리 시험.",
    "יידיש און עברית 123 mixed עם English",
    "ქართული ენა, Հայերեն, አማርኛ, ខ្មែរ, བོད་ཡིག",
    "Tiếng Việt có dấu: Nguyễn Trường Tộ, đường phố.",
]

EMOJI = [
    "🙂",
    "I ❤️ Rust 🦀🦀🦀!",
    "👨‍👩‍👧‍👦 family, 👩🏽‍💻 coder, 🏳️‍🌈 flag",
    "🇩🇪🇫🇷🇯🇵 and 🏴󠁧󠁢󠁳󠁣󠁴󠁿",
    "1️⃣2️⃣ ✅ ☕️ ©️ ™",
]

SPACE = [
    "",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n\n",
    "\t",
    "a b",
    "a  b",
    "a   b    c     d",
    " leading",
    "trailing ",
    "  both  ",
    "tab\tbetween\t\twords",
    "line one\nline two\n\nline four\n",
    "windows\r\nline\r\n\r\nends\r",
    " \n \n  \n   x",
    "x \t \n\t y",
    "non-breaking\u00a0space, em\u2003space, ideographic\u3000space, line\u2028sep, next\u0085line",
    " " * 40 + "indented" + " " * 17,
    "\n" * 20 + "deep",
    "\u200b zero\u200bwidth \u200d\ufeff",
]

CODE = [
    "fn main() {\n    let x: Vec<u32> = (0..10).map(|i| i * 2).collect();\n    println!(\"{x:?}\");\n}\n",
    "def f(x, *, y=None):\n\treturn [i ** 2 for i in range(x) if i % 3 != 0]  # squares\n",
    "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", 1 << 4); return 0; }",
    "SELECT COUNT(*) FROM t WHERE a >= 1.5e-3 AND b <> 'x''y';",
    "const f = async (a) => { await fetch(`https://example.org/${a}?q=1&r=2#top`); };",
    "<div class=\"a b\">&nbsp;<!-- comment --></div>",
    "if (a&&b||!c) {a[i]+=b->c;} /* ... */ //====----++++",
    "{\"key\": [1, 2.0, -3e10, null, true], \"nested\": {\"a\": \"\\u00e9\"}}",
    "$ cargo build --release && ./target/release/run -t 8 > out.txt 2>&1",
    "main: mov rax, [rbx+8*rcx]\n\tjne .L2\n",
    "\\begin{equation} E = mc^2 \\end{equation} $\\alpha \\leq \\beta$",
]

NUMBERS = [
    "0",
    "12",
    "1234567890",
    "3.14159 2,718,281 1e-9 0xDEADBEEF",
    "2024-07-26T12:34:56Z +49 (0)30 1234-5678",
    "٣٤٥ ४५६ ๗๘๙ ⅷ ½ ²³ 一二三",
    "99 bottles, 100% of 1000000 in 1st, 2nd, 3rd",
]

CONTRACTIONS = [
    "I'm you're he's she'd we'll they've isn't",
    "I'M YOU'RE HE'S SHE'D WE'LL THEY'VE ISN'T",
    "it’s don’t ‘quoted’ “double” ... …",
    "'s't're've'm'll'd 'S'T'RE'VE'M'LL'D rock'n'roll o'clock",
]

MARKS = [
    "caf\u00e9 cafe\u0301",
    "\u1e9b\u0323 \u1e9b\u0323 q\u0307\u0323 q\u0323\u0307",
    "\u212b \u00c5 A\u030a \u2126 \u03a9",
    "\uac00 \u1100\u1161 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "\u0301 alone, x\u0336y\u0336z\u0336, Z\u0351\u036b\u0343a\u0321l\u0310g\u0356o\u0301",
    "ﬁ ﬂ ① ㎏ ｆｕｌｌ ｗｉｄｔｈ",
    "क\u094d\u0937 \u0958 \u0915\u093c",
]

CONTROL = [
    "\x00",
    "a\x00b\x01c\x1b[31mred\x1b[0m\x7f",
    "bell\x07 back\x08 form\x0c vert\x0b",
    "\ufffd replacement \ufffe\uffff",
    "\U0001f9ff \U000e0001 \U0010ffff private \ue000",
]

REPEATS = [
    "a" * 300,
    "ab" * 150,
    "abc " * 60,
    "-" * 100,
    "=" * 77 + "\n" + "*" * 33,
    "0" * 64,
    "é" * 50 + "日" * 50,
    "!?" * 40,
    "🙂" * 20,
    "\t" * 9 + "x" + "\n\t" * 9,
    "ha" * 7 + " " + "HA" * 7,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
]

PROSE = [
    "Once upon a time there was a machine with two sockets. It had a lot of memory, but half of it "
    "was far away, and nobody knew which half until it was too late.",
    "The answer is 42. The question is: what do you get if you multiply six by nine (in base 13)?",
    "Explain, step by step, why the sky is blue; then write a haiku about it.",
    "Le cœur a ses raisons que la raison ne connaît point : on le sait en mille choses.",
    "Der Speicher ist schneller als man denkt, aber langsamer, als man ihn braucht.",
]

TEXTS = (
    SCRIPTS + EMOJI + SPACE + CODE + NUMBERS + CONTRACTIONS + MARKS + CONTROL + REPEATS + PROSE
)


def specials(control, user):
    """Strings with special tokens in them: `control` and `user` are lists of token texts."""
    a, b = control[0], control[1]
    return [
        a,
        a + b,
        f"{a}system\nYou are helpful.{b}\n",
        f"before {a} between {b} after",
        f"  {a}  spaces  {b}  ",
        f"{a[:-1]} {a} {a[1:]}",
        f"{user[0]}",
        f"{user[0]}abc",
        f"abc {user[0]} def{user[1]}ghi",
        f"{a}{user[0]}thinking\n{user[1]}\n\nanswer{b}",
        f"{user[0]}{user[1]}{user[0]} {user[1]}",
        f"cafe\u0301{a}e\u0301{user[0]}\u0301",
    ]


TRAINING = PROSE + [
    "A barrier is a place where threads wait for each other. The fewer there are, the faster the "
    "machine runs, because every wait costs as much as a hundred multiplications.",
    "Reading from the memory beside a core is fast; reading from the memory of another socket is "
    "slow, and the link between them is shared by everybody.",
    "When the model answers a question, it reads all of its weights once for every word. That is "
    "why the speed of memory, not the speed of arithmetic, decides how fast it speaks.",
    "Мы читаем книгу о памяти и процессорах, и она нам очень нравится, потому что она короткая.",
    "Η μνήμη είναι γρήγορη όταν είναι κοντά και αργή όταν είναι μακριά από τον επεξεργαστή.",
    "الذاكرة القريبة سريعة والذاكرة البعيدة بطيئة، وهذا كل ما في الأمر.",
    "内存很快,但是处理器更快。机器学习需要很多内存。天地玄黃,宇宙洪荒。",
    "メモリは速いですが、プロセッサはもっと速いです。いろはにほへと。",
    "메모리는 빠르지만 프로세서는 더 빠르다. 한국어 문장.",
    "हम स्मृति और गति के बारे में बात कर रहे हैं।",
    "for (int i = 0; i < n; i++) {\n    sum += a[i] * b[i];\n}\nreturn sum;\n",
    "def main():\n    print('hello world')\n    return 0\n\n\nif __name__ == '__main__':\n    main()\n",
    "1234 5678 90 100 1000 10000 2023 2024 2025 3.14 2.718",
]
