"""Conversations: what a user may say and what the demo model answers.

A topic is a function that returns one or more (question, answer) pairs: a pair after
the first depends on the one before it. `conversation` strings topics together, now
and then under a system prompt that the answers obey.
"""

from dataclasses import dataclass

from facts import (BABIES, CAPITALS, CATEGORIES, DAYS, DEFINITIONS, LEGS, MONTHS, OPPOSITES,
                   PLURALS, POEMS, RECIPES, SOUNDS, THING_COLOURS, UNKNOWN, UNKNOWN_SUBJECTS, WHY)
from grammar import Grammar, article, capital, listing
from stories import Wish, story
from words import (ANIMALS, COLOURS, NAMES, NUMBER_WORDS, OBJECTS, PEOPLE, PERSON_PRONOUN,
                   PLACES)

Turns = list[tuple[str, str]]

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass
class Talk:
    """What holds through one conversation."""

    name: str = "the Arclight demo model"
    brief: bool = False  # answer in one word where there is one
    user: str | None = None


def short_or(talk: Talk, word: str, sentence: str) -> str:
    return capital(word) + "." if talk.brief else sentence


# --- small talk ------------------------------------------------------------------------


def greet(g: Grammar, t: Talk) -> Turns:
    return [(g.fill("[Hello|Hi|Hey|Good morning|Good evening|Hello there|Hi there][!|.|]"),
             g.fill("[Hello|Hi|Good day]! [How can I help you?|What can I do for you?|Shall I tell you a story?|It is nice to meet you.]"))]


def mood(g: Grammar, t: Talk) -> Turns:
    return [(g.fill("[How are you|How are you today|How do you do|How is it going]?"),
             g.fill("I am [fine|very well|well], thank you. [How are you?|What can I do for you?|I hope that you are well too.]"))]


def thanks(g: Grammar, t: Talk) -> Turns:
    return [(g.fill("[Thank you|Thanks|Thank you very much|Thanks a lot|That was nice|Well done|Great][!|.]"),
             g.fill("You are welcome! [Is there anything else?|Just ask if you need anything else.|It was a pleasure.|]"))]


def bye(g: Grammar, t: Talk) -> Turns:
    return [(g.fill("[Goodbye|Bye|See you later|Good night|I have to go][!|.]"),
             g.fill("[Goodbye|Bye]! [Come back soon.|Have a nice day.|Sleep well.|Until next time.]"))]


def who(g: Grammar, t: Talk) -> Turns:
    return [(g.fill("[Who are you|What are you|What is your name|Tell me who you are|Introduce yourself|Who am I talking to]?"),
             g.fill("I am {n}, [a very small language model|a tiny language model]. [I can tell stories and answer simple questions.|I know short stories and simple facts.|Ask me for a story.]", n=t.name))]


def self_facts(g: Grammar, t: Talk) -> Turns:
    return [g.pick([
        ("What can you do?", "I can tell little stories, answer simple questions, count, and do small sums."),
        ("What can you help me with?", "I can tell little stories, answer simple questions, count, and do small sums."),
        ("Who made you?", "I was trained from scratch by a small script, on texts that the script made up."),
        ("How big are you?", "I am very small: I have about three million weights, and my file has about three megabytes."),
        ("How many parameters do you have?", "I have about three million parameters. Large models have a thousand times more."),
        ("Are you a human?", "No, I am a small language model. I only know what I was trained on."),
        ("Are you a robot?", "No, I am a small language model. I only know what I was trained on."),
        ("Are you smart?", "Not very. I am small, but I am fast."),
        ("What do you know?", "I know capitals, colours, animals, small sums and many little stories."),
        ("Where do you run?", "I run on ordinary processors, without a graphics card."),
        ("How old are you?", "I am as old as my file."),
        ("Can you tell stories?", "Yes, I can. Just tell me who the story should be about."),
        ("Do you like stories?", "I like them very much. Shall I tell you one?"),
    ])]


def my_name(g: Grammar, t: Talk) -> Turns:
    t.user = g.pick(list(NAMES))
    return [(g.fill("[My name is {n}|I am {n}|Hello, I am {n}|Hi, my name is {n}|You can call me {n}].", n=t.user),
             g.fill("[Nice to meet you|Hello|It is nice to meet you], {n}! [What can I do for you?|How can I help you?|]", n=t.user))]


def recall_name(g: Grammar, t: Talk) -> Turns:
    ask = g.fill("[What is my name|Do you know my name|Do you remember my name|Who am I]?")
    if t.user is None:
        return [(ask, g.fill("You have not told me your name yet. [What is it?|What is your name?]"))]
    return [(ask, g.fill("Your name is {n}.", n=t.user))]


# --- facts -------------------------------------------------------------------------------


def capitals(g: Grammar, t: Talk) -> Turns:
    first, second = g.some(list(CAPITALS), 2)
    turns = [(g.fill("[What is the capital of {c}|What is {c}'s capital|Which city is the capital of {c}|Tell me the capital of {c}|Do you know the capital of {c}]?", c=first),
              short_or(t, CAPITALS[first], f"The capital of {first} is {CAPITALS[first]}."))]
    if g.chance(0.25):
        turns[0] = (f"{CAPITALS[first]} is the capital of which country?",
                    short_or(t, first, f"{CAPITALS[first]} is the capital of {first}."))
    elif g.chance(0.4):
        turns.append((g.fill("[And|And what is the capital|And the capital|What about the capital] of {c}?", c=second),
                      short_or(t, CAPITALS[second], f"The capital of {second} is {CAPITALS[second]}.")))
    return turns


def colours(g: Grammar, t: Talk) -> Turns:
    thing = g.pick(list(THING_COLOURS))
    c = THING_COLOURS[thing]
    return [(g.fill("[What colour is {t}|What is the colour of {t}|Which colour does {t} have|What color is {t}]?", t=thing),
             short_or(t, c, f"{capital(thing)} is {c}."))]


def opposites(g: Grammar, t: Talk) -> Turns:
    pairs = [p if g.chance(0.5) else p[::-1] for p in g.some(OPPOSITES, 2)]
    (a, b), (c, d) = pairs
    turns = [(g.fill("[What is the opposite of {a}|Tell me the opposite of {a}|What is the opposite of \"{a}\"]?", a=a),
              short_or(t, b, f"The opposite of {a} is {b}."))]
    if g.chance(0.4):
        turns.append((g.fill("And [the opposite |]of {c}?", c=c), short_or(t, d, f"The opposite of {c} is {d}.")))
    return turns


def animals(g: Grammar, t: Talk) -> Turns:
    form = g.rng.randrange(4)
    if form == 0:
        a = g.pick(list(SOUNDS))
        return [(g.fill("[What does {a} say|What sound does {a} make|Which sound does {a} make]?", a=article(a)),
                 short_or(t, SOUNDS[a], f"{capital(article(a))} says {SOUNDS[a]}."))]
    if form == 1:
        a = g.pick(list(BABIES))
        return [(g.fill("[What is a baby {a} called|What do you call a baby {a}|What is a young {a} called]?", a=a),
                 short_or(t, article(BABIES[a]), f"A baby {a} is called {article(BABIES[a])}."))]
    if form == 2:
        a = g.pick(list(LEGS))
        n = NUMBER_WORDS[LEGS[a]] if LEGS[a] else "no"
        return [(g.fill("How many legs does {a} have?", a=article(a)),
                 short_or(t, n if LEGS[a] else "none", f"{capital(article(a))} has {n} legs."))]
    a = g.pick(list(PLURALS))
    return [(g.fill("[What is the plural of {a}|What is the plural of \"{a}\"|How do you say more than one {a}]?", a=a),
             short_or(t, PLURALS[a], f"The plural of {a} is {PLURALS[a]}."))]


def define(g: Grammar, t: Talk) -> Turns:
    subject = g.pick(list(DEFINITIONS))
    return [(g.fill("[What is {s}|What is {s}|Explain what {s} is|Can you explain what {s} is|Tell me what {s} is|What exactly is {s}]?", s=subject),
             g.pick(DEFINITIONS[subject]))]


def why(g: Grammar, t: Talk) -> Turns:
    q = g.pick(list(WHY))
    return [(f"Why {q}?", WHY[q])]


def calendar(g: Grammar, t: Talk) -> Turns:
    table, word = (DAYS, "day") if g.chance(0.5) else (MONTHS, "month")
    i = g.rng.randrange(len(table))
    after, before = table[(i + 1) % len(table)], table[i - 1]
    if g.chance(0.15):
        return [(f"Name the {word}s of the {'week' if word == 'day' else 'year'}.", listing(table) + ".")]
    if g.chance(0.5):
        return [(g.fill("[Which {w} comes after {x}|What comes after {x}|What {w} is after {x}]?", w=word, x=table[i]),
                 short_or(t, after, f"After {table[i]} comes {after}."))]
    return [(g.fill("[Which {w} comes before {x}|What comes before {x}]?", w=word, x=table[i]),
             short_or(t, before, f"Before {table[i]} comes {before}."))]


def unknown(g: Grammar, t: Talk) -> Turns:
    return [(g.pick(UNKNOWN).format(x=g.pick(UNKNOWN_SUBJECTS)),
             g.fill("[I am sorry, I do not know that.|I do not know that.|That is too hard for me.] I am only a very small model. "
                    "[Ask me for a story, or ask me about colours, capitals or animals.|But I can tell you a story, if you like.]"))]


# --- numbers -----------------------------------------------------------------------------


def sums(g: Grammar, t: Talk) -> Turns:
    form = g.rng.randrange(4)
    a = g.rng.randint(0, 20)
    if form == 0:
        b = g.rng.randint(0, 20 - a)
        r, ask, said = a + b, "{a} + {b}", "{a} plus {b} is {r}."
        spoken = "{a} plus {b}"
    elif form == 1:
        b = g.rng.randint(0, a)
        r, ask, said = a - b, "{a} - {b}", "{a} minus {b} is {r}."
        spoken = "{a} minus {b}"
    elif form == 2:
        a, b = g.rng.randint(1, 5), g.rng.randint(1, 5)
        r, ask, said = a * b, "{a} * {b}", "{a} times {b} is {r}."
        spoken = "{a} times {b}"
    else:
        b = g.pick([n for n in range(21) if n != a])
        r = max(a, b)
        return [(g.fill("[Which is larger|Which number is larger|What is more], {a} or {b}?", a=a, b=b),
                 short_or(t, str(r), f"{r} is larger than {min(a, b)}."))]
    kind = g.rng.randrange(3)
    if kind == 2 and r <= 20:
        w = [NUMBER_WORDS[n] for n in (a, b, r)]
        q, answer = g.fill("[What is|How much is] " + spoken + "?", a=w[0], b=w[1]), w[2]
        return [(q, short_or(t, answer, capital(said.format(a=w[0], b=w[1], r=w[2]))))]
    q = g.fill("[What is|How much is|Calculate|Please calculate] " + (ask if kind == 0 else spoken) + "?", a=a, b=b)
    if q.startswith(("Calculate", "Please")):
        q = q[:-1] + "."
    return [(q, short_or(t, str(r), said.format(a=a, b=b, r=r)))]


def counting(g: Grammar, t: Talk) -> Turns:
    a = g.rng.randint(0, 14)
    b = g.rng.randint(a + 2, min(20, a + 12))
    if g.chance(0.25):
        return [(f"Count down from {b}.", ", ".join(str(n) for n in range(b, -1, -1)) + ".")]
    if g.chance(0.3):
        return [(f"Count from {NUMBER_WORDS[a]} to {NUMBER_WORDS[b]} in words.",
                 capital(", ".join(NUMBER_WORDS[a:b + 1])) + ".")]
    return [(g.fill("[Count from {a} to {b}|Please count from {a} to {b}|Can you count from {a} to {b}].", a=a, b=b),
             ", ".join(str(n) for n in range(a, b + 1)) + ".")]


# --- longer answers ------------------------------------------------------------------------


def telling(g: Grammar, t: Talk) -> Turns:
    kind, thing = g.pick(ANIMALS + PEOPLE), g.pick(OBJECTS)
    other = g.pick([k for k in ANIMALS if k != kind])
    pronoun = PERSON_PRONOUN.get(kind)
    name = g.pick([n for n, p in NAMES.items() if pronoun in (None, p)])
    wish, ask = g.pick([
        (Wish(), "[Tell me a story|Please tell me a story|Can you tell me a story|I would like to hear a story|A story, please]."),
        (Wish(kind=kind), "[Tell me a story about {k}|Write a story about {k}|Tell me a short story about {k}|I want a story about {k}]."),
        (Wish(kind=kind), "[Tell me a story about {k}|Please tell me a story about {k}|A story about {k}, please]."),
        (Wish(kind=kind, other=other), "[Tell me a story about {k} and {o}|Write a story about {k} and {o}]."),
        (Wish(kind=kind, name=name), "[Tell me a story about {k} called {n}|Write a story about {k} named {n}]."),
        (Wish(kind=kind, thing=thing), "[Tell me a story about {k} with {x}|Write a story about {k} and {x}]."),
    ])
    q = g.fill(ask, k=article(kind), o=article(other), n=name, x=article(thing))
    turns = [(q, story(g, wish, one_paragraph=g.chance(0.5)))]
    if g.chance(0.2):
        turns.append((g.fill("[Tell me another one|Another one, please|One more story, please][.|!]"), story(g, one_paragraph=True)))
    return turns


def poem(g: Grammar, t: Talk) -> Turns:
    s = g.pick(list(POEMS))
    return [(g.fill("[Write a poem about {s}|Tell me a poem about {s}|A poem about {s}, please|Write a short poem about {s}].", s=s),
             "\n".join(g.fill(line) for line in POEMS[s]))]


def recipe(g: Grammar, t: Talk) -> Turns:
    s = g.pick(list(RECIPES))
    return [(g.fill("[How do I make {s}|How can I make {s}|How do you make {s}|Tell me how to make {s}]?", s=s),
             "\n".join(f"{i}. {step}" for i, step in enumerate(RECIPES[s], 1)))]


def naming(g: Grammar, t: Talk) -> Turns:
    c = g.pick(list(CATEGORIES))
    n = g.rng.randint(2, 5)
    items = g.some(CATEGORIES[c], n)
    if g.chance(0.3):
        return [(f"Make a list of {NUMBER_WORDS[n]} {c}.", "\n".join("- " + capital(i) for i in items))]
    return [(g.fill("[Name|Tell me|Give me] {n} {c}.", n=NUMBER_WORDS[n] if g.chance(0.6) else n, c=c), capital(listing(items)) + ".")]


def as_json(g: Grammar, t: Talk) -> Turns:
    kind, name, colour, n = g.pick(ANIMALS), g.pick(list(NAMES)), g.pick(COLOURS), g.rng.randint(1, 12)
    return [(g.fill("Describe {k} called {n} as JSON." if g.chance(0.5) else "Make a JSON object for {k} called {n}, colour {c}, age {y}.",
                    k=article(kind), n=name, c=colour, y=n),
             f'{{"kind": "{kind}", "name": "{name}", "colour": "{colour}", "age": {n}}}')]


def repeat(g: Grammar, t: Talk) -> Turns:
    words = g.fill("[the {c} {k} likes {c2} {o}s|{n} has {y} {o}s|{n} and {m} went to the {p}|a {c} {o} and a {c2} {o2}]",
                   c=g.pick(COLOURS), c2=g.pick(COLOURS), k=g.pick(ANIMALS), o=g.pick(OBJECTS), o2=g.pick(OBJECTS),
                   n=g.pick(list(NAMES)), m=g.pick(list(NAMES)), y=NUMBER_WORDS[g.rng.randint(2, 12)], p=g.pick(list(PLACES)))
    if g.chance(0.4):
        name = g.pick(list(NAMES))
        return [(g.fill("[Say hello to {n}|Please greet {n}].", n=name), f"Hello, {name}!")]
    return [(g.fill("[Repeat after me|Say this|Repeat]: {w}", w=words), words)]


# drawn from evenly: a topic stands here as often as it is worth
TOPICS = ([greet, mood, thanks, who, self_facts, my_name, recall_name, calendar, why, poem, recipe,
           naming, as_json, repeat, counting, colours]
          + [capitals] * 3 + [opposites] * 2 + [animals] * 3 + [define] * 4 + [sums] * 5
          + [telling] * 5 + [unknown] * 2)

SYSTEMS = ["You are a helpful assistant.", "You are the Arclight demo model.",
           "You are a friendly assistant. Answer simply.", "You are a kind storyteller."]
BRIEF = ["Answer in one word.", "Answer with one word only.", "Be brief. Answer in one word if you can.",
         "You are a helpful assistant. Answer in one word."]


def loosely(g: Grammar, question: str) -> str:
    """The same as people type it: without capitals or the mark at the end."""
    if question.startswith(("Tell", "Explain", "Introduce")):
        question = question.rstrip("?.") + "."
    if g.chance(0.15):
        question = question.lower()
    if g.chance(0.15) and question[-1] in "?.!":
        question = question[:-1]
    return question


def message(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def conversation(g: Grammar) -> str:
    talk, out = Talk(), ""
    draw = g.rng.random()
    if draw < 0.2:
        out += message("system", g.pick(SYSTEMS))
    elif draw < 0.3:
        talk.name = g.pick(list(NAMES))
        out += message("system", g.fill("[Your name is {n}.|You are {n}, a helpful assistant.|You are a storyteller called {n}.]", n=talk.name))
    elif draw < 0.4:
        talk.brief = True
        out += message("system", g.pick(BRIEF))
    turns = g.pick([1, 1, 1, 2, 2, 3, 4, 6, 9])
    topics = [g.pick(TOPICS) for _ in range(turns)]
    if turns > 2 and g.chance(0.5):  # a name that must be remembered
        topics[0], topics[-1] = my_name, recall_name
    elif turns > 1 and g.chance(0.3):
        topics[0] = greet
    if turns > 2 and g.chance(0.2):
        topics.append(bye)
    for topic in topics:
        for question, answer in topic(g, talk):
            out += message("user", loosely(g, question)) + message("assistant", answer)
    return out
