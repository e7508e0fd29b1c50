"""The lexicon: everything a story or an answer can mention."""

# name -> pronoun
NAMES = {
    "Pip": "he", "Nora": "she", "Tam": "he", "Lila": "she", "Oskar": "he", "Mira": "she",
    "Bruno": "he", "Wren": "she", "Hazel": "she", "Otto": "he", "Juno": "she", "Fern": "she",
    "Milo": "he", "Ada": "she", "Rufus": "he", "Ivy": "she", "Basil": "he", "Clara": "she",
    "Finn": "he", "Greta": "she", "Hugo": "he", "Iris": "she", "Jasper": "he", "Kit": "he",
    "Luna": "she", "Max": "he", "Nell": "she", "Olive": "she", "Percy": "he", "Rosa": "she",
    "Sam": "he", "Tilly": "she", "Una": "she", "Victor": "he", "Willa": "she", "Bella": "she",
}

ANIMALS = ["fox", "bear", "rabbit", "owl", "hedgehog", "mouse", "otter", "badger", "squirrel",
           "duck", "frog", "cat", "dog", "goat", "pony", "turtle", "crow", "deer", "mole",
           "beaver", "lion", "dragon", "robot", "penguin"]
PEOPLE = ["girl", "boy", "baker", "farmer", "gardener", "miller", "shepherd", "teacher",
          "sailor", "clockmaker", "princess", "prince"]
PERSON_PRONOUN = {"girl": "she", "princess": "she", "boy": "he", "prince": "he"}

NATURES = ["small", "kind", "brave", "shy", "curious", "clever", "proud", "quiet", "cheerful",
           "young", "gentle", "patient", "busy", "sleepy", "careful", "lonely"]

# place -> (where somebody lives, where somebody walks)
PLACES = {
    "forest": ("in a [quiet|deep|green|old] forest", "through the forest"),
    "meadow": ("beside a [sunny|wide|flowery] meadow", "across the meadow"),
    "village": ("in a [small|tiny|busy] village", "through the village"),
    "hill": ("on [a green|a round|a windy] hill", "up the hill"),
    "lake": ("beside a [calm|blue|silver] lake", "around the lake"),
    "river": ("beside a [wide|slow|clear] river", "along the river"),
    "mountain": ("at the foot of a [tall|snowy|grey] mountain", "up the mountain path"),
    "harbour": ("near [a busy|an old|a noisy] harbour", "along the harbour wall"),
    "valley": ("in a [warm|hidden|narrow] valley", "down the valley"),
    "garden": ("in a [large|wild|pretty] garden", "through the garden"),
    "mill": ("next to an old [mill|watermill]", "past the mill"),
    "farm": ("on a [little|busy|friendly] farm", "across the farm"),
    "island": ("on a [small|sandy|far] island", "along the beach"),
    "castle": ("in an old stone castle", "through the castle"),
}

OBJECTS = ["lantern", "key", "kite", "map", "basket", "drum", "bell", "ribbon", "button", "hat",
           "scarf", "book", "cup", "spoon", "flute", "shell", "feather", "clock", "coin", "ball",
           "umbrella", "blanket"]
COLOURS = ["red", "blue", "green", "yellow", "white", "black", "brown", "orange", "purple",
           "silver", "golden", "pink", "grey"]
FOODS = ["bread", "honey", "soup", "apple pie", "cheese", "porridge", "plum cake",
         "warm milk", "berry jam", "roasted nuts"]
COUNTED = {"apple": "apples", "plum": "plums", "nut": "nuts", "egg": "eggs", "carrot": "carrots",
           "shell": "shells", "coin": "coins", "berry": "berries", "fish": "fish", "cake": "cakes"}

SPOTS = ["under the old oak tree", "behind the barn", "beside the well", "in the tall grass",
         "under the bridge", "near the garden gate", "on top of the woodpile",
         "between two round stones", "in the hollow log", "at the edge of the pond",
         "behind the kitchen door", "on the lowest branch of a willow"]

# weather -> (how the day begins, what it does)
WEATHER = {
    "sun": ("the sun was [bright|warm] and the sky was [blue|clear]",
            "The sun dried [the grass|every leaf] and made the [water|windows] shine."),
    "rain": ("it was raining softly", "The rain filled every puddle, and the path turned to mud."),
    "wind": ("a strong wind was blowing",
             "The wind shook the trees and [carried leaves|sent hats] across the [road|grass]."),
    "snow": ("snow was falling", "The snow covered the ground, and every sound was soft."),
    "fog": ("a thick fog lay over the ground",
            "The fog was so thick that [nobody could see the road|even the trees looked far away]."),
    "frost": ("there was frost on [the windows|the grass]",
              "The cold had turned every puddle to ice."),
}

FEELINGS_GOOD = ["happy", "glad", "proud", "pleased", "cheerful"]
FEELINGS_BAD = ["sad", "worried", "upset", "unhappy"]

SKILLS = {
    "swim": ("the water", "jumped in and swam to the other side"),
    "whistle": ("the song of the blackbird", "whistled a whole song"),
    "read": ("the letters in an old book", "read the first page aloud"),
    "skate": ("the ice on the pond", "went all the way around the pond without a fall"),
    "sing": ("the notes of an old song", "sang for the whole village"),
    "climb": ("the tall pine tree", "climbed up to the highest branch"),
    "bake": ("the oven in the kitchen", "baked a loaf that was round and golden"),
    "paint": ("the colours of the evening sky", "painted a picture of the sunset"),
    "dance": ("the steps of the harvest dance", "danced until the music stopped"),
    "count": ("the stones beside the road", "counted to twenty without a mistake"),
}

PLANTS = {"sunflower": "taller than the fence", "pumpkin": "as round as the moon",
          "apple tree": "full of red apples", "bean plant": "so high that it touched the roof",
          "rose bush": "covered with pink roses", "strawberry plant": "heavy with sweet strawberries"}

# plot -> what its characters may conclude
MORALS = {
    "lost": ["Good friends make hard work easy.", "Four eyes see more than two.",
             "It is better to ask for help than to search alone."],
    "shared": ["What you share comes back to you.", "A kind deed is never lost."],
    "storm": ["A house is warm when a friend is in it.", "A friend in the rain is a friend in the sun."],
    "race": ["Slow and steady goes a long way.", "It is not only the winner who counts.",
             "Be fast, but do not boast."],
    "bridge": ["What is too hard for one is easy for two.", "Do not give up after the second try."],
    "lesson": ["Patience is stronger than hurry.", "Small steps can go a long way.",
               "Nobody is born a master."],
    "noise": ["Being brave does not mean that you are never afraid.",
              "Most things are smaller than their shadow."],
    "gift": ["The best gifts are made by hand.", "Look twice before you judge once."],
    "planted": ["Good things need time.", "Great things can grow from a small seed."],
    "journey": ["The way is half of the goal.", "A long road is short with a friend."],
    "market": ["Kindness is worth more than coins.", "What you give is not lost."],
    "neighbour": ["Look twice before you judge once.", "A kind word opens every door."],
    "quarrel": ["A friend is worth more than a treasure.", "To say sorry is not hard, if you mean it."],
    "repaired": ["Even the smallest friend can do great things.", "Everybody is good at something."],
    "wishes": ["Be careful what you wish for.", "Enough is better than too much."],
    "homeward": ["Help the small ones, for you were small once.", "A kind heart knows the way."],
}

NUMBER_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
                "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen",
                "seventeen", "eighteen", "nineteen", "twenty"]
