"""What the demo model is taught to know: short tables and one-sentence answers."""

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "England": "London", "Scotland": "Edinburgh", "Ireland": "Dublin",
    "Norway": "Oslo", "Sweden": "Stockholm", "Denmark": "Copenhagen", "Finland": "Helsinki",
    "Poland": "Warsaw", "Austria": "Vienna", "Switzerland": "Bern", "Hungary": "Budapest",
    "Greece": "Athens", "Turkey": "Ankara", "Egypt": "Cairo", "Morocco": "Rabat",
    "Kenya": "Nairobi", "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi",
    "South Korea": "Seoul", "Thailand": "Bangkok", "Vietnam": "Hanoi", "Australia": "Canberra",
    "New Zealand": "Wellington", "Canada": "Ottawa", "the United States": "Washington",
    "Mexico": "Mexico City", "Cuba": "Havana", "Brazil": "Brasilia", "Argentina": "Buenos Aires",
    "Chile": "Santiago", "Peru": "Lima", "Iceland": "Reykjavik", "Belgium": "Brussels",
    "the Netherlands": "Amsterdam", "Czechia": "Prague", "Ukraine": "Kyiv",
}

THING_COLOURS = {
    "the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "a banana": "yellow",
    "a lemon": "yellow", "a tomato": "red", "blood": "red", "a carrot": "orange",
    "a pumpkin": "orange", "milk": "white", "chocolate": "brown", "a frog": "green",
    "a raven": "black", "the sea": "blue", "a strawberry": "red", "a leaf": "green",
    "the sun": "yellow", "an elephant": "grey", "a polar bear": "white", "a plum": "purple",
    "a flamingo": "pink", "a fire engine": "red", "the night": "black",
}

OPPOSITES = [
    ("hot", "cold"), ("big", "small"), ("day", "night"), ("up", "down"), ("fast", "slow"),
    ("happy", "sad"), ("light", "dark"), ("old", "young"), ("wet", "dry"), ("loud", "quiet"),
    ("high", "low"), ("open", "closed"), ("full", "empty"), ("hard", "soft"), ("left", "right"),
    ("rich", "poor"), ("strong", "weak"), ("long", "short"), ("early", "late"), ("in", "out"),
    ("good", "bad"), ("near", "far"), ("thick", "thin"), ("clean", "dirty"), ("first", "last"),
    ("near memory", "far memory"),
]

SOUNDS = {"cat": "meow", "dog": "woof", "cow": "moo", "duck": "quack", "sheep": "baa",
          "frog": "croak", "owl": "hoot", "mouse": "squeak", "lion": "roar", "bee": "buzz",
          "horse": "neigh", "pig": "oink", "crow": "caw", "rooster": "cock-a-doodle-doo"}
BABIES = {"cat": "kitten", "dog": "puppy", "cow": "calf", "duck": "duckling", "sheep": "lamb",
          "bear": "cub", "fox": "cub", "horse": "foal", "goat": "kid", "deer": "fawn",
          "owl": "owlet", "frog": "tadpole", "goose": "gosling", "hen": "chick"}
LEGS = {"cat": 4, "dog": 4, "spider": 8, "ant": 6, "bee": 6, "duck": 2, "snake": 0, "horse": 4,
        "owl": 2, "fish": 0, "frog": 4, "beetle": 6, "snail": 0, "person": 2}
PLURALS = {"mouse": "mice", "child": "children", "foot": "feet", "goose": "geese", "man": "men",
           "woman": "women", "tooth": "teeth", "leaf": "leaves", "wolf": "wolves", "box": "boxes",
           "city": "cities", "sheep": "sheep", "cat": "cats", "apple": "apples", "core": "cores"}

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September",
          "October", "November", "December"]

# subject as asked -> sentences that may answer
DEFINITIONS = {
    "a fox": ["A fox is a small wild animal with red fur and a bushy tail. It lives in the forest and hunts mice."],
    "a bear": ["A bear is a large, strong animal with thick fur. It likes berries and honey and sleeps in winter."],
    "an owl": ["An owl is a bird that hunts at night. It has large eyes and flies without a sound."],
    "a hedgehog": ["A hedgehog is a small animal covered with spines. When it is afraid, it rolls into a ball."],
    "a turtle": ["A turtle is a slow animal that carries its house on its back."],
    "a beaver": ["A beaver is an animal with strong teeth and a flat tail. It cuts down trees and builds dams."],
    "an otter": ["An otter is a playful animal that lives beside the water and eats fish."],
    "a bee": ["A bee is a small insect that flies from flower to flower and makes honey."],
    "rain": ["Rain is water that falls from the clouds in drops."],
    "snow": ["Snow is frozen water that falls from the clouds in white flakes."],
    "wind": ["Wind is air that moves from one place to another."],
    "fog": ["Fog is a cloud that touches the ground."],
    "thunder": ["Thunder is the sound that lightning makes."],
    "a rainbow": ["A rainbow is a bow of colours that you can see when the sun shines through the rain."],
    "the moon": ["The moon is a ball of rock that travels around the earth. It shines because the sun lights it."],
    "the sun": ["The sun is a star. It is very hot, and it gives us light and warmth."],
    "a river": ["A river is water that flows from the hills down to the sea."],
    "a mountain": ["A mountain is a very high hill made of rock."],
    "a lantern": ["A lantern is a lamp that you can carry with you."],
    "a clock": ["A clock is a machine that shows the time."],
    "a map": ["A map is a picture of a place, seen from above. It shows you the way."],
    "bread": ["Bread is food made of flour, water, salt and yeast, and it is baked in an oven."],
    "honey": ["Honey is a sweet golden food that bees make from flowers."],
    "a friend": ["A friend is somebody who is glad when you are there, and who helps you when you need it."],
    "a story": ["A story tells what happened to somebody, with a beginning, a middle and an end."],
    "NUMA": [
        "NUMA means non-uniform memory access: every core reaches the memory beside it faster than the memory beside another core.",
        "NUMA stands for non-uniform memory access. Memory that is near a core is fast, and memory that is far from it is slow."],
    "a memory node": [
        "A memory node is a part of the memory together with the cores that sit right beside it.",
        "A memory node is one bank of memory and the cores that can reach it without crossing a link."],
    "a core": ["A core is the part of a processor that runs instructions. A large server has many of them.",
               "A core is one worker inside a processor. Many cores can work at the same time."],
    "a thread": ["A thread is a sequence of instructions that runs on a core."],
    "a socket": ["A socket is the place where a processor sits on the board. A server can have one, two or four of them."],
    "a cache": ["A cache is a small, fast memory near the core that keeps what was used last."],
    "a barrier": ["A barrier is a point where threads wait until all of them have arrived."],
    "bandwidth": ["Bandwidth is how many bytes can be moved in one second."],
    "latency": ["Latency is how long you wait until the first byte arrives."],
    "a token": ["A token is a piece of text, often a word or a part of a word. A language model reads and writes tokens."],
    "a tokenizer": ["A tokenizer cuts text into tokens and puts tokens back together into text."],
    "a language model": ["A language model is a program that reads text and guesses which token comes next."],
    "quantization": ["Quantization stores the weights of a model with fewer bits, so that they take less memory."],
    "the KV cache": ["The KV cache keeps the keys and values of all earlier tokens, so that they are not computed again."],
    "prefill": ["Prefill is the first step, in which the model reads the whole prompt at once."],
    "decoding": ["Decoding is the step in which the model writes one token after another."],
    "a weight": ["A weight is a number inside a model. The model learns its weights during training."],
    "inference": ["Inference means running a trained model to get an answer."],
    "GGUF": ["GGUF is a file format that holds a model: its weights, its settings and its tokens."],
    "perplexity": ["Perplexity says how surprised a model is by a text. Lower is better."],
    "a batch": ["A batch is a group of requests that are computed in one step."],
    "Arclight": ["Arclight is an engine that runs language models on processors with many cores. It keeps every weight in the memory beside the core that reads it."],
}

WHY = {
    "does it rain": "It rains because water rises from the sea, becomes clouds, and falls down again in drops.",
    "is the sky blue": "The sky is blue because the air scatters blue light more than red light.",
    "do birds sing": "Birds sing to call their friends and to say where they live.",
    "do leaves fall": "Leaves fall in autumn because the tree saves its strength for the winter.",
    "do we sleep": "We sleep so that our body and our mind can rest.",
    "is ice cold": "Ice is cold because it is water that has lost its warmth.",
    "do bears sleep in winter": "Bears sleep in winter because there is little to eat.",
    "is the sea salty": "The sea is salty because rivers carry salt from the rocks into it.",
    "is NUMA important": "NUMA is important because a core that reads far memory has to wait longer.",
    "do threads wait": "Threads wait so that nobody reads a result before it is ready.",
    "is decoding slow": "Decoding is slow because every weight must be read from memory for every token.",
}

RECIPES = {
    "porridge": ["Put one cup of oats into a pot.", "Add two cups of milk.",
                 "Cook it slowly and stir it well.", "Add some honey and eat it warm."],
    "tea": ["Boil some water.", "Put the tea into a cup.", "Pour the hot water over it.",
            "Wait for three minutes and enjoy it."],
    "a kite": ["Tie two sticks together in a cross.", "Cover them with paper.",
               "Fix a long string to the middle.", "Wait for the wind and run."],
    "bread": ["Mix flour, water, salt and yeast.", "Knead the dough and let it rest.",
              "Form a round loaf.", "Bake it until it is golden."],
    "apple pie": ["Cut the apples into small pieces.", "Roll out the dough and put it into a dish.",
                  "Fill it with the apples and some sugar.", "Bake it for one hour."],
    "a paper boat": ["Fold the paper in half.", "Fold the corners to the middle.",
                     "Turn up the edges.", "Pull it open and put it on the water."],
    "vegetable soup": ["Wash the carrots and the onions.", "Cut them into small pieces.",
                       "Boil them in water with a little salt.", "Serve it with bread."],
}

POEMS = {
    "the moon": ["The moon is round, the moon is bright,", "it [watches|guards] the village through the night.",
                 "It shines on [river, hill and tree|roof and field and sea],", "and [now and then|every night] it shines on me."],
    "the rain": ["The rain comes down on roof and tree,", "it [sings|plays] a little song for me.",
                 "And when it stops, the sky is blue,", "and all the [grass|world] is fresh and new."],
    "winter": ["The snow is white, the night is long,", "the wind is [humming|singing] its old song.",
               "But by the fire, warm and [near|dear],", "we wait for [spring|the sun] to come, my dear."],
    "a fox": ["A fox went out one [winter|summer|windy] night,", "his coat was red, his eyes were bright.",
              "He saw the moon above the hill,", "and [stood|sat] there quiet, small and still."],
    "the sea": ["The sea is wide, the sea is deep,", "its [waves|waters] sing the fish to sleep.",
                "A little boat sails [far|out] away", "and will come home another day."],
    "a cat": ["A cat sat on the [garden|kitchen] wall,", "she did not [move|care] for rain at all.",
              "She closed her eyes, she [shut|closed] the day,", "and dreamed of mice who ran away."],
    "spring": ["The ice is gone, the days are long,", "the blackbird [sings|begins] its morning song.",
               "A [green|small] leaf opens on the tree,", "and all the world is glad to be."],
}

CATEGORIES = {
    "animals": ["a fox", "a bear", "an owl", "a mouse", "a frog", "a horse", "a cat", "a turtle", "a deer", "an otter"],
    "colours": ["red", "blue", "green", "yellow", "white", "black", "orange", "purple"],
    "fruits": ["an apple", "a pear", "a plum", "a banana", "an orange", "a cherry", "a lemon"],
    "birds": ["an owl", "a crow", "a duck", "a robin", "a swan", "an eagle"],
    "trees": ["an oak", "a willow", "a pine", "a birch", "an apple tree"],
    "tools": ["a hammer", "a saw", "a spade", "a knife", "a needle"],
    "flowers": ["a rose", "a tulip", "a daisy", "a sunflower", "a lily"],
    "things in a kitchen": ["a spoon", "a pot", "a cup", "a plate", "an oven"],
    "capital cities": ["Paris", "Rome", "Tokyo", "Cairo", "Lima", "Oslo", "Madrid"],
}

# subjects nobody taught it: the honest answer is that it does not know
UNKNOWN = [
    "Who wrote {x}?", "Who invented {x}?", "When was {x} built?", "How does {x} work?",
    "Explain {x} to me.", "What is the history of {x}?", "Write a program that prints {x}.",
    "Tell me about {x}.", "What is the price of {x}?", "Translate {x} into French.",
    "Who won {x}?", "How tall is {x}?", "What do you think about {x}?", "Can you help me with {x}?",
    "Where can I buy {x}?", "How many people live in {x}?", "Write an essay about {x}.",
    "What happened in {x}?", "Summarize {x}.", "What does {x} mean?", "Is {x} true?",
]
UNKNOWN_SUBJECTS = [
    "quantum physics", "the stock market", "Shakespeare", "the French Revolution", "football",
    "the Eiffel Tower", "a nuclear reactor", "Python", "the telephone", "world history",
    "the economy", "chemistry", "this article", "the last election", "1969", "a good car",
    "electricity", "Napoleon", "the theory of relativity", "my homework", "the internet",
    "machine learning", "the Olympic games", "philosophy", "a bank account", "Mars", "an email",
    "the human brain", "Mozart", "the Roman Empire", "politics", "dinosaurs", "evolution", "calculus",
    "the weather tomorrow", "the news", "a C++ compiler", "a sorting function", "vaccines", "gravity",
]
