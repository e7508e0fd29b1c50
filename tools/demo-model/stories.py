"""Little stories with a cause, an effect and characters who stay who they are.

A story draws two characters and a place, then follows one of the plots. A plot is a
function that returns paragraphs; every sentence has several forms. Slots: {a} and
{b} are the characters' names, {he}/{him}/{his} belong to the first and
{bhe}/{bhim}/{bhis} to the second, {akind}/{bkind} say what they are.
"""

from dataclasses import dataclass

from grammar import Grammar, article, capital, listing
from words import (ANIMALS, COLOURS, COUNTED, FEELINGS_BAD, FEELINGS_GOOD, FOODS, MORALS, NAMES,
                   NATURES, NUMBER_WORDS, OBJECTS, PEOPLE, PERSON_PRONOUN, PLACES, PLANTS, SKILLS,
                   SPOTS, WEATHER)

_CASES = {"he": ("he", "him", "his"), "she": ("she", "her", "her")}


@dataclass(frozen=True)
class Wish:
    """What somebody asked the story to be about; None means free."""

    kind: str | None = None
    other: str | None = None
    name: str | None = None
    place: str | None = None
    thing: str | None = None
    colour: str | None = None


class Story:
    """One story in the making: the slots that all its sentences share."""

    def __init__(self, g: Grammar, wish: Wish):
        self.g = g
        kind = wish.kind or g.pick(ANIMALS if g.chance(0.7) else PEOPLE)
        other = wish.other or g.pick([k for k in ANIMALS if k != kind] if g.chance(0.8)
                                     else [k for k in PEOPLE if k != kind])
        name, friend = self._name(kind, wish.name), self._name(other, None)
        while friend == name:
            friend = self._name(other, None)
        place = wish.place or g.pick(list(PLACES))
        home, walk = PLACES[place]
        nature, bnature = g.some(NATURES, 2)
        obj = wish.thing or g.pick(OBJECTS)
        colour, colour2 = g.some(COLOURS, 2)
        colour = wish.colour or colour
        spots = g.some(SPOTS, 3)
        he, him, his = _CASES[self._pronoun(name, kind)]
        bhe, bhim, bhis = _CASES[self._pronoun(friend, other)]
        self.weather = g.pick(list(WEATHER))
        self.slots = dict(
            a=name, b=friend, akind=kind, bkind=other, nature=nature, bnature=bnature,
            anature=article(nature), abnature=article(bnature), he=he, him=him, his=his,
            bhe=bhe, bhim=bhim, bhis=bhis, place=place, home=g.fill(home), walk=walk,
            thing=obj, athing=article(obj), colour=colour, acolour=article(colour),
            colour2=colour2, acolour2=article(colour2), food=g.pick(FOODS), spot=spots[0], spot2=spots[1], spot3=spots[2],
            good=g.pick(FEELINGS_GOOD), bad=g.pick(FEELINGS_BAD),
            sky=g.fill(WEATHER[self.weather][0]), effect=g.fill(WEATHER[self.weather][1]),
        )

    def _pronoun(self, name: str, kind: str) -> str:
        return PERSON_PRONOUN.get(kind, NAMES[name])

    def _name(self, kind: str, asked: str | None) -> str:
        if asked:
            return asked
        want = PERSON_PRONOUN.get(kind)
        return self.g.pick([n for n, p in NAMES.items() if want in (None, p)])

    def say(self, *sentences: str, **extra) -> str:
        """A paragraph; empty alternatives vanish."""
        parts = (self.g.fill(s, **self.slots, **extra) for s in sentences)
        return " ".join(p for p in parts if p)

    # --- beats that many plots share ---

    def opening(self) -> str:
        return self.say(
            "[Once upon a time, there was|Once upon a time there lived|Long ago, there was|There once was|"
            "In the days of our grandmothers there was] {anature} {akind} [named|called] {a}[, who lived {home}.|. {a} lived {home}.|"
            ". {He} lived {home} in a little house with {acolour} door.|. {His} home was {home}.]",
            "[|{a} was known to everyone there, because {he} was so {nature}.|Every morning {he} ate {food} and looked out of the window.|"
            "{He} liked [long walks|rainy days|old songs|warm evenings] and {food} [best of all|more than anything].|]")

    def friend(self) -> str:
        return self.say("[{His} best friend was {abnature} {bkind} [named|called] {b}.|Next door lived {b}, {abnature} {bkind}.|"
                        "{He} had one good friend, {abnature} {bkind} called {b}.]")

    def day(self) -> str:
        return self.say("[One morning|One day|One afternoon|On the first day of [spring|summer|autumn|winter]], {sky}.", "[|{effect}]")

    def ending(self) -> str:
        return self.say(
            "[That evening they sat by the fire and shared {food}.|The two friends walked home together {walk}.|They laughed about it for a long time.|"
            "From that day on, {a} and {b} were never far apart.|That night {a} slept very well.|{a} was {good}, and so was {b}.|"
            "When the stars came out, they were still talking.]",
            "[|And {a} never forgot that day.|The end.|{moral}|\"{saying},\" said {b}.|{a} had learned something: {moral}]")


# --- plots ---------------------------------------------------------------------------


def lost(s: Story) -> list[str]:
    causes = [("the wind had blown it there", "The wind must have carried it away."),
              ("a crow had dropped it there", "A crow must have taken it."),
              ("it had fallen from {his} bag", "It must have fallen from your bag."),
              ("the rain had washed it there", "The rain must have washed it away.")]
    why, guess = s.g.pick(causes)
    return [
        s.say(s.opening(), "{a} had {acolour} {thing}, and {he} [took it everywhere|loved it very much|kept it in a safe place].", s.friend()),
        s.say(s.day(), "[When {a} woke up|After breakfast|When {he} came home], the {thing} was gone. {a} looked [in every room|in every corner|high and low], but [it was not there|{he} could not find it]. {He} felt very {bad}."),
        s.say("\"[What is wrong|Why are you so {bad}|What has happened], {a}?\" asked {b}.", "\"I have lost my {colour} {thing},\" said {a}.",
              "\"[Do not worry|Do not cry|Be calm],\" said {b}. \"[We will look for it together|Two can look better than one|I will help you]. " + guess + "\""),
        s.say("First they looked {spot}, but they found only [some leaves|an old boot|a sleeping snail|{acolour2} {button}].", "Then they looked {spot2}, [and there was nothing at all|but it was not there either].",
              "At last {b} looked {spot3}. \"[Here it is|I can see it|Come quickly, {a}]!\" {bhe} [called|shouted]. The {thing} lay there, because " + why + ".", button=s.g.pick(["button", "feather", "stone"])),
        s.say("{a} [held the {thing} tightly|jumped for joy|smiled from ear to ear]. \"Thank you, {b}!\" {he} said. \"[Without you I would never have found it|You are a true friend|You have sharp eyes].\"", s.ending()),
    ]


def shared(s: Story) -> list[str]:
    return [
        s.say(s.opening(), s.day()),
        s.say("{a} had [some|a little] {food} and was [going to eat|about to eat] it {spot}. [Just then|At that moment] {abnature} {bkind} came {walk}. It was {b}, and {bhe} looked [hungry|cold and hungry|very thin]."),
        s.say("\"[Good morning|Hello], {a},\" said {b}. \"That smells [good|wonderful]. I have not eaten since yesterday.\"",
              "{a} looked at the {food}. There was [not much|only a little], and {he} was hungry too. But {he} was [not greedy|kind at heart]. \"[Sit down and eat with me|Half of it is yours|Come, there is enough for two],\" {he} said."),
        s.say("So they ate together, and [the {food} tasted better than ever|soon the bowl was empty]. {b} told {a} a [funny|strange|long] story about {acolour} {thing}."),
        s.say("[A week later|When winter came|Some days later], {a} [fell into a deep hole {spot2}|got lost in the fog|hurt {his} foot {spot2}]. {He} called for help, and who came running? It was {b}. \"You shared your {food} with me,\" said {b}. \"Now I will [help you|carry you home|show you the way].\""),
        s.say(s.ending()),
    ]


def storm(s: Story) -> list[str]:
    part = s.g.pick(["roof", "door", "window", "fence", "chimney"])
    return [
        s.say(s.opening(), s.friend()),
        s.say("One [night|evening] a [great|terrible|wild] storm came over the {place}. [The thunder rolled|The wind howled|Lightning lit up the sky], and the rain beat on the windows. {a} [hid under a blanket|sat by the fire|lit the {colour} lantern] and waited."),
        s.say("[Suddenly|Then|At midnight] there was a knock at the door. Outside stood {b}, [wet from head to foot|shaking with cold]. \"The storm has broken my {part},\" {bhe} said. \"[May I stay with you|May I come in|I have nowhere to go]?\"", part=part),
        s.say("\"[Of course|Come in, come in|You are always welcome],\" said {a}. {He} gave {b} a [dry|warm|soft] blanket and a bowl of {food}. [Soon {b} stopped shaking.|Soon both of them were warm.]"),
        s.say("In the morning the storm was over. {a} took a hammer, and {b} took some [wood|nails|boards]. They worked [all day|until noon|for two days], and when they were done the {part} was [stronger than before|as good as new].", part=part),
        s.say("\"[How can I thank you|You have done so much for me]?\" asked {b}. \"[You would do the same for me|That is what friends are for|Just keep me company],\" said {a}.", s.ending()),
    ]


def race(s: Story) -> list[str]:
    helped = s.g.chance(0.5)
    middle = ("Halfway, {a} [tripped over a root|stepped into the mud|fell into a ditch] and could not get up. {b} saw it and [stopped|turned back]. "
              "\"The race can wait,\" {bhe} said, and helped {him} to stand. They crossed the line [together|side by side], and everybody [cheered|clapped]."
              if helped else
              "{a} was far ahead. \"I have [so much time|all day],\" {he} thought, and lay down {spot} for a nap. But {b} walked on and on, [slowly|one step after another], and did not stop. "
              "When {a} woke up, {b} was already [at the old bridge|at the finish]. {a} ran as fast as {he} could, but it was too late. {b} had won.")
    after = ("\"I wanted to win,\" said {a}, \"but [now I am glad that we both did|a friend is better than a prize].\"" if helped else
             "\"You were slow,\" said {a}, \"but you never stopped. [I am sorry that I laughed at you|Next time I will not laugh].\"")
    return [
        s.say(s.opening(), "{a} was the fastest runner [of all|for miles around], and {he} [often said so|never let anybody forget it].", s.friend()),
        s.say("\"Nobody can beat me,\" said {a} one day. \"[I can try|We shall see|Let us have a race],\" said {b}. \"From the [well|mill|gate] to the old bridge.\" [Everybody laughed|{a} laughed loudly], because {b} was so slow."),
        s.say("The next morning {sky}. [All the neighbours came to watch.|A crowd came to watch.] \"One, two, three, go!\" called the [old owl|miller|teacher], and off they went."),
        s.say(middle),
        s.say(after, s.ending()),
    ]


def bridge(s: Story) -> list[str]:
    tries = s.g.some([
        ("threw a rope across", "the rope was too short"), ("tried to jump", "the river was too wide"),
        ("put a plank across the stones", "the plank broke in the middle"),
        ("made a boat from [bark|an old barrel]", "the boat filled with water"),
        ("tried to walk through the water", "the water was too deep")], 2)
    return [
        s.say(s.opening(), "Across the river there was [a garden full of plums|a hill with the best view|a field of wild berries], but there was no bridge, and {a} wished to go there [more than anything|very much]."),
        s.say(s.day(), "{a} " + tries[0][0] + ", but " + tries[0][1] + ". Then {he} " + tries[1][0] + ", but " + tries[1][1] + ". {He} sat down {spot}, [wet and {bad}|tired and {bad}]."),
        s.say("[Just then|After a while] {abnature} {bkind} came along. {Bhis} name was {b}. \"[What are you doing|Why do you look so {bad}]?\" asked {b}. \"I want to cross the river,\" said {a}, \"but I [cannot do it alone|have tried twice and failed].\""),
        s.say("\"Then let us build a bridge,\" said {b}. {b} [cut|carried] the [wood|logs], and {a} [tied everything together|fixed everything with rope]. [They began with the posts, and then they laid the boards.|They worked from morning until evening.] On the [second|third|fourth] day the bridge was [done|ready]."),
        s.say("\"[You go first|After you],\" said {b}. {a} put one foot on the bridge, then the other. It did not [shake|move] at all. On the other side they [ate until they were full|sat down and looked back at their work].", s.ending()),
    ]


def lesson(s: Story) -> list[str]:
    skill = s.g.pick(list(SKILLS))
    thing, done = SKILLS[skill]
    return [
        s.say(s.opening(), "There was one thing that {a} could not do: {he} could not {skill}. The others [laughed at {him}|said that {he} would never learn], and this made {him} {bad}.", skill=skill),
        s.say(s.day(), "{a} went to see {b}, {abnature} {bkind} who knew a lot. \"Can you teach me to {skill}?\" {he} asked. \"[Yes|Of course|Gladly],\" said {b}, \"but [it will take time|you must practise every day|you must not give up].\"", skill=skill),
        s.say("On the first day they only looked at {what}. On the second day {a} tried and [failed|got it wrong]. On the third day {he} failed again, but [not so badly|a little less]. \"I [am too stupid for this|will never do it],\" said {a}. \"[Everybody fails at first|I failed a hundred times|Try once more],\" said {b}.", what=thing),
        s.say("[Many days went by.|A whole week went by.|Spring turned to summer.] {a} practised [in the morning and in the evening|every single day]. Then, one day, {he} took a deep breath and " + done + "."),
        s.say("\"[You did it|Well done|I knew it], {a}!\" [cried|said] {b}. Nobody laughed now. {a} felt very {good}.", s.ending()),
    ]


def noise(s: Story) -> list[str]:
    sound, cause = s.g.pick([
        ("a tapping", "{b} was mending {bhis} roof by moonlight"), ("a strange humming", "{b} was singing to {bhimself}"),
        ("a scratching", "{b} was digging for something {bhe} had lost"), ("a soft crying", "{b} had a thorn in {bhis} foot"),
        ("a rattling", "{b} was trying to open an old box"), ("a splashing", "{b} was taking a bath in a barrel")])
    return [
        s.say(s.opening(), "{a} was [not afraid of anything|a little afraid of the dark], [or so {he} said|but {he} told nobody]."),
        s.say("One night {he} woke up. There was " + sound + " outside. [It stopped, and then it began again.|It came from far away, and then it came closer.] \"[Who is there|What can that be]?\" whispered {a}. [Nobody answered.|There was no answer.]"),
        s.say("{a} [pulled the blanket over {his} head|counted to ten]. Then {he} thought: \"[If I do not look, I will never sleep|Perhaps somebody needs help].\" So {he} took {his} {colour} lantern and went out into the dark."),
        s.say("{He} looked {spot}. Nothing. {He} looked {spot2}. Nothing. Then {he} went {walk}, and the sound was [very close|louder]. {a} held up the lantern, and there was {abnature} {bkind}. It was only {b}!"),
        s.say(cause + ".", "\"You [gave me a fright|scared me],\" said {a}. \"I am sorry,\" said {b}. \"[I did not want to wake you|I thought that everybody was asleep].\" {a} [laughed|began to laugh] and [stayed to help|sat down beside {bhim}].",
              bhimself=s.slots["bhim"] + "self"),
        s.say(s.ending()),
    ]


def gift(s: Story) -> list[str]:
    return [
        s.say(s.opening(), s.friend(), "Soon it would be {b}'s birthday."),
        s.say("\"What shall I give {bhim}?\" thought {a}. {He} had no money, so {he} decided to make something. {He} took some [wood|wool|paper|cloth] and began to make {athing}. It took [three|four|five] days, and it had to be a secret."),
        s.say("Every day {b} asked, \"[Will you come out and play|What are you doing in there|Why is your door shut]?\" And every day {a} said, \"[Not today|I am busy|I cannot tell you].\" {b} [went home alone|walked away slowly]. \"{a} does not like me any more,\" {bhe} thought, and felt {bad}."),
        s.say("On the birthday {sky}. {b} sat {spot} and did not want to see anybody. Then {a} came {walk} with a parcel. \"[Happy birthday|This is for you], {b}!\" {he} said. Inside was a beautiful {colour} {thing}."),
        s.say("\"[So this was your secret|You made this for me]!\" said {b}. \"And I thought that you were angry with me.\" \"[Never|How could I be],\" said {a}.", s.ending()),
    ]


def planted(s: Story) -> list[str]:
    plant = s.g.pick(list(PLANTS))
    return [
        s.say(s.opening(), "One spring day {a} found a [tiny|small|round] seed {spot}. \"[I will plant it|What will grow from this],\" {he} said[|, and put it into the ground]."),
        s.say("Every day {he} gave it water. [One day|A week] went by, and nothing happened. {b}, {abnature} {bkind}, came to look. \"[It is only a stone|Nothing will ever grow there],\" said {b}. \"[Wait and see|Good things need time],\" said {a}."),
        s.say("Then the rain came and made the ground soft. After the rain came the sun and made it warm. And one morning there was a little green leaf. {a} [danced with joy|called everybody to see it]."),
        s.say("The leaf became two leaves, and the two became [four|many]. By [the end of summer|autumn] there was a [great|fine|beautiful] {plant}, " + PLANTS[plant] + ". \"[I was wrong|I would never have believed it],\" said {b}.", plant=plant),
        s.say("{a} [shared it with all the neighbours|gave the first piece to {b}|kept one seed for the next year].", s.ending()),
    ]


def journey(s: Story) -> list[str]:
    goal = s.g.pick(["the sea", "the top of the mountain", "the end of the rainbow", "the old lighthouse", "the great city", "the oldest tree in the world"])
    return [
        s.say(s.opening(), "{He} had an old map, and on the map somebody had marked {goal} with {acolour} cross. \"[One day I will go there|I want to see it],\" {he} said.", goal=goal),
        s.say(s.day(), "{a} packed [some {food}|a bag with {food}], {athing} and the map, and set out {walk}."),
        s.say("On the way {he} met {b}, {abnature} {bkind}, who [was stuck in the mud|had lost {bhis} way|sat {spot} with a sore foot]. {a} [helped {bhim} up|gave {bhim} some {food}]. \"Where are you going?\" asked {b}. \"To {goal},\" said {a}. \"[Then I will come with you.|May I come too?]\"", goal=goal),
        s.say("They walked for [two|three|four] days. [They crossed a river and climbed a hill.|They slept under the stars.] On the second day the map [fell into the water|blew away], but {b} [could follow the sun|remembered the way]. So they did not get lost."),
        s.say("And then they stood there. [It was more beautiful than {a} had dreamed.|Neither of them said a word.] \"[The way was the best part|I am glad that I did not come alone],\" said {a}.", s.ending()),
    ]


def market(s: Story) -> list[str]:
    word = s.g.pick(list(COUNTED))
    many = COUNTED[word]
    start = s.g.rng.randint(5, 12)
    gave = s.g.rng.randint(1, 3)
    sold = s.g.rng.randint(1, start - gave - 1)
    one, two = start - gave, start - gave - sold
    n = lambda k: f"{NUMBER_WORDS[k]} {word if k == 1 else many}"
    was = lambda k: "was" if k == 1 else "were"
    return [
        s.say(s.opening(), "It was market day, and {a} had {start} in a basket. {He} wanted to [sell them|trade them] for {acolour} {thing}.", start=n(start)),
        s.say("On the way {he} met {abnature} {bkind}. It was {b}. \"[I am so hungry|What lovely {many}],\" said {b}. {a} gave {bhim} {gave}. Now there {was} {one} left in the basket.",
              many=many, gave=n(gave), one=n(one), was=was(one)),
        s.say("At the market [a farmer|a sailor|an old woman] bought {sold}. {a} counted again: {count}. There {was} {two} left.",
              sold=n(sold), two=n(two), count=listing(NUMBER_WORDS[1:two + 1]), was=was(two)),
        s.say("\"Is that enough for the {colour} {thing}?\" asked {a}. The [seller|weaver|old man] [shook his head|thought for a moment]. \"[Not quite|It costs more than that],\" he said. Then {b} [came running|stepped forward]. \"{a} was kind to me,\" said {b}. \"[I will pay the rest|Please let {him} have it].\" [The man smiled and handed over the {thing}.|And so {a} got the {thing} after all.]"),
        s.say(s.ending()),
    ]


def neighbour(s: Story) -> list[str]:
    return [
        s.say(s.opening(), "The house next door had been empty for [a year|a long time]. Then, one day, there was smoke from the chimney."),
        s.say("\"Somebody has moved in,\" thought {a}. {He} looked through the fence and saw {abnature} {bkind} with {acolour} {thing}. \"[Hello|Good morning]!\" called {a}. But the {bkind} [ran inside|said nothing] and shut the door."),
        s.say("\"[How rude|What a strange neighbour],\" {he} thought at first. Then {he} thought again: \"[Perhaps it is only shy|Perhaps it is new here and afraid].\" So {a} put some {food} in front of the door and went home."),
        s.say("The next morning the food was gone, and there was a note. [On it stood|It said]: \"Thank you. My name is {b}.\" {a} [smiled|was {good}]. \"I am {a},\" {he} [answered|said]. \"Shall we [have tea|go for a walk|fly a kite]?\""),
        s.say("{b} was not rude at all, only a little shy. [{Bhe} knew a hundred songs.|{Bhe} could tell wonderful stories.]", s.ending()),
    ]


def quarrel(s: Story) -> list[str]:
    return [
        s.say(s.opening(), s.friend(), "They did everything together."),
        s.say(s.day(), "They found {acolour} {thing} {spot}. \"It is mine, because I saw it first,\" said {a}. \"No, it is mine, because I picked it up,\" said {b}. They [shouted|pulled and pulled], and then [the {thing} broke in two|the {thing} fell into the water]."),
        s.say("\"[That was your fault|Look what you have done]!\" said {b}, and went home. {a} went home too. [All day nobody laughed {spot2}.|The evening was very long.] {a} [could not eat {his} {food}|could not sleep]. \"It was only {athing},\" {he} thought. \"But {b} is my friend.\""),
        s.say("The next morning {a} went {walk}. Halfway {he} met {b}, who was coming the other way. \"I am sorry,\" they both said at the same time, and then they [laughed|had to laugh]."),
        s.say("[They mended the {thing} together and kept it one week each.|\"Next time we will share,\" said {b}.|They mended the {thing} and gave it to a little {kid} who had none.]", s.ending(), kid=s.g.pick(["mouse", "bird", "child"])),
    ]


def repaired(s: Story) -> list[str]:
    part = s.g.pick(["a small wheel", "a spring", "a tiny screw", "a bent pin"])
    return [
        s.say(s.opening(), "In the middle of the village stood a tower with a great clock. [It told everybody when to get up and when to go to bed.|Its bell rang every hour.]"),
        s.say("One day the clock stopped. [Nobody knew the time any more.|Everything went wrong.] The baker baked at midnight, and [the school opened in the evening|the rooster slept until noon]. \"[What shall we do|Who can help us]?\" people asked."),
        s.say("{a} [climbed|went] up the tower with {acolour} lantern. {He} looked at the wheels, [one by one|big and small]. \"{part} is missing,\" {he} said, \"and it must have fallen into that crack. My [hand|arm] is too big for it.\"", part=capital(part)),
        s.say("Then {b}, {abnature} {bkind}, [stepped forward|raised a hand]. \"I can reach it,\" {bhe} said. [Some people laughed.|Nobody believed it.] But {b} reached into the crack, [deeper and deeper|slowly and carefully], and came back with {part}.", part=part),
        s.say("{a} put it into its place, and the clock went tick, tock, tick, tock. The bell rang, and [the whole village cheered|everybody set their clocks again].", s.ending()),
    ]


def wishes(s: Story) -> list[str]:
    return [
        s.say(s.opening(), s.day(), "{a} found {acolour} {thing} {spot}. When {he} touched it, a voice said: \"You have three wishes. [Think well|Choose wisely].\""),
        s.say("\"I wish for [a mountain of {food}|a house of gold|a hundred coins],\" said {a} at once. And there it was. But [soon it was too much|it was no fun alone], and {he} [grew tired of it|did not know what to do with it]."),
        s.say("\"I wish that I could [fly|be as big as a tree|be as strong as ten horses],\" {he} said next. And so it was. But now everybody [was afraid of {him}|ran away], and {he} felt [lonely|{bad}]. Even {b}, the {bnature} {bkind}, hid {spot2}."),
        s.say("{a} thought for a long time. Only one wish was left. \"I wish that everything was as it was before,\" {he} said. The {thing} [shone for a moment|grew warm], and then it was just {athing}."),
        s.say("{b} came out. \"[You are back|You are yourself again],\" said {b}. \"Yes,\" said {a}, \"and [I have all that I need|that is the best wish of all].\"", s.ending()),
    ]


def homeward(s: Story) -> list[str]:
    return [
        s.say(s.opening(), s.day(), "{a} was walking {walk} when {he} heard a small voice {spot}."),
        s.say("It was a little {bkind}. \"[I cannot find my way home|I have lost my mother],\" it said, and a tear ran down its face. \"[What is your name|Who are you]?\" asked {a}. \"I am {b},\" said the little {bkind}."),
        s.say("\"What is near your home?\" asked {a}. {b} thought about it. \"There is a [red|white|green] gate,\" {bhe} said, \"and [a tall tree|a round well|a field of flowers].\" \"[I know that place|I have seen it before],\" said {a}. \"It is behind the {place2}. Come, I will take you there.\"",
              place2=s.g.pick([p for p in PLACES if p != s.slots["place"]])),
        s.say("They went {spot2}, and then past the mill, and {a} told a story so that {b} was not afraid. [When {b} was tired, {a} carried {bhim}.|When it got cold, {a} gave {bhim} a warm scarf.] At last they saw the gate."),
        s.say("{b}'s mother came running. \"[There you are|My little {b}]!\" she cried. \"Thank you, {a}. [Please eat with us|How can I ever thank you].\" They had {food}, and [{a} stayed until the moon came up|{a} was {good}].", "[|{moral}|The end.|And after that {a} came to visit every week.]"),
    ]


PLOTS = [lost, shared, storm, race, bridge, lesson, noise, gift, planted, journey, market,
         neighbour, quarrel, repaired, wishes, homeward]


def story(g: Grammar, wish: Wish = Wish(), one_paragraph: bool = False) -> str:
    s = Story(g, wish)
    plot = g.pick(PLOTS)
    s.slots["moral"] = g.pick(MORALS[plot.__name__])
    s.slots["saying"] = s.slots["moral"].rstrip(".")
    paragraphs = plot(s)
    if one_paragraph or g.chance(0.25):
        return " ".join(paragraphs)
    return "\n".join(paragraphs)


def titled(g: Grammar) -> str:
    """A story that sometimes carries a title."""
    if not g.chance(0.25):
        return story(g)
    kind = g.pick(ANIMALS + PEOPLE)
    thing, colour = g.pick(OBJECTS), g.pick(COLOURS)
    return f"The {capital(kind)} and the {capital(colour)} {capital(thing)}\n\n" + story(
        g, Wish(kind=kind, thing=thing, colour=colour))
