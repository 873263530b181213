"""English fact patterns about who a person is; the first that matches a clause wins.

What a person does, plans and did is in `hippocampus.providers.local.patterns_en_life`.
"""

from __future__ import annotations

from hippocampus.providers.local.patterns import english

DAYS = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?"
I_AM = r"(?:I'm|I am)"
I_HAVE = (
    r"(?:I've got|I have got|we've got|we have got|I've|I have|we've|we have|I ~have|we ~have|I got|we got"
    r"|I ~adopted|we ~adopted)"
)
COUNT = r"(?:an?|another|one|two|three|four|five|six|\d|some|twin)"
KIN = (
    r"(?P<about>husband|wife|partner|boyfriend|girlfriend|fianc[eé]e?|daughter|son|sister|brother|stepson"
    r"|stepdaughter|niece|nephew|grandson|granddaughter|roommate|mom|mum|mother|dad|father|grandma"
    r"|grandmother"
    r"|grandpa|grandfather|aunt|uncle|cousin|best friend|boss|manager|doctor|dentist)"
)
ANIMAL = (
    r"(?:dogs?|pupp(?:y|ies)|pups?|cats?|kittens?|kitt(?:y|ies)|rabbits?|bunn(?:y|ies)|hamsters?|guinea pigs?"
    r"|parrots?|parakeets?|turtles?|tortoises?|horses?|pon(?:y|ies)|goldfish|snakes?|lizards?|geckos?"
    r"|ferrets?"
    r"|chickens?|budgies?|canar(?:y|ies)|axolotls?)"
)
OCCUPATION = (
    r"(?:[a-z-]+ ){0,3}?(?:[a-z]+(?:ologist|ician|ographer|wright)|engineer|nurse|teacher|developer|designer"
    r"|doctor|lawyer|chef|baker|writer|author|artist|architect|accountant|programmer|professor|researcher"
    r"|scientist|dentist|pharmacist|therapist|counsell?or|social worker|journalist|editor|translator"
    r"|interpreter"
    r"|photographer|musician|singer|actor|actress|dancer|painter|potter|carpenter|plumber|driver|pilot"
    r"|firefighter|police officer|paramedic|veterinarian|librarian|manager|consultant|analyst|economist"
    r"|banker"
    r"|cashier|waiter|waitress|barista|bartender|farmer|gardener|florist|tailor|hairdresser|barber|student"
    r"|intern"
    r"|freelancer|entrepreneur|screenwriter|novelist|blogger|streamer|gamer|coach|trainer|tutor|surgeon"
    r"|midwife"
    r"|soldier|veteran|single (?:mom|mum|dad|parent|mother|father))"
)
MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)

# Tables, read by row.
# fmt: off
IDENTITY = (
    english("name", "profile", r"(?:my name is|my name's|(?:please |you can |just )*call me) (?P<object>.+)",
        "is called {object}", "name", 0.95, single=True),
    english("name", "profile",
        rf"{I_AM} (?P<object>[A-Z][a-z]+(?<!ish)(?<!ese)(?<!ian)(?<!can)(?<!nch)(?<!tch)(?<!ing))$",
        "is called {object}", "name", 0.7, single=True),
    english("age", "profile", rf"{I_AM} ~(?P<object>\d{{1,2}}) years old\b.*", "is {object} years old",
        "plain", 0.95, single=True),
    english("age", "profile", r"I ~turned (?P<object>\d{1,2})\b.*", "is {object} years old", "plain", 0.95,
        single=True),
    english("birthday", "profile",
        rf"my birthday(?:'s| is| falls) (?:on )?(?:the )?(?P<object>\d.*{MONTH}|{MONTH} .*\d\S*)",
        "has their birthday on {object}", "plain", 0.95, single=True),
    english("relationship_status", "profile",
        rf"{I_AM} ~(?P<object>married|single|engaged|divorced|widowed)$", "is {object}", "plain", 0.9,
        single=True),
    english("relationship_status", "profile",
        r"(?:I|we) ~(?:got|are) (?P<object>married|engaged|divorced)\b.*", "is {object}", "plain", 0.9,
        single=True),
    english("relationship_status", "profile",
        r"(?:I've|we've|I have|we have) been (?P<object>married) for .+", "is {object}", "plain", 0.9,
        single=True),
)
PLACES = (
    english("home", "profile",
        rf"(?:I ~live|{I_AM} ~living|we ~live|(?:we're|we are) ~living|{I_AM} ~based) (?:in|near|at)"
        r" (?P<object>.+)", "lives in {object}", "place", 0.95, single=True),
    english("home", "profile",
        r"(?:I|we|I've|we've|I have|we have) ~(?:moved|relocated) (?:back |over |out )?to" r" (?P<object>.+)",
        "lives in {object}", "place", 0.9, single=True),
    english("origin", "profile",
        rf"(?:{I_AM} ~from|I ~come from|I ~grew up in|I was ~(?:born|raised|born and raised) in"
        r"|my home ?town is|my home country is) (?P<object>.+)", "is from {object}", "place", 0.9,
        single=True),
    english("origin", "profile", r".*\bmy home ?(?:country|town), (?P<object>[A-Z]\w+)", "is from {object}",
        "place", 0.85, single=True),
)
WORK = (
    english("occupation", "profile", rf"(?:I ~work|{I_AM} ~working) as (?P<object>(?:an?|the) .+)",
        "works as {object}", "role", 0.95, single=True),
    english("occupation", "profile", rf"{I_AM} ~(?P<object>an? {OCCUPATION})\b(?! (?:of|who|at heart)\b).*",
        "is {object}", "role", 0.9, single=True),
    english("occupation", "profile", rf"I've ~been (?P<object>an? {OCCUPATION}) (?:for|since) .+",
        "is {object}", "role", 0.9, single=True),
    english("occupation", "profile", r"I ~work (?:at|for|in) .+? as (?P<object>an? .+)", "works as {object}",
        "role", 0.95, single=True),
    english("employer", "profile",
        rf"(?:I ~work|{I_AM} ~working|I ~started working) (?:at|for) (?P<object>.+)", "works at {object}",
        "org", 0.9, single=True),
    english("employer", "profile",
        r"I ~(?:got hired (?:at|by)|was hired by|started at|start at|got a job at) (?P<object>[A-Z].+)",
        "works at {object}", "org", 0.85, single=True),
    english("field_of_work", "profile",
        rf"(?:I ~work|{I_AM} ~working) in (?P<object>(?!the (?:morning|evening|afternoon)|my ).+)",
        "works in {object}", "role", 0.85, single=True),
    english("work_change", "profile",
        r"I ~(?P<object>(?:quit|left|lost|resigned from) my (?:old |current )?job)\b.*", "{object}", "event",
        0.9, single=True),
    english("new_job", "profile",
        r"I ~(?P<object>(?:got|landed|accepted|started|took) (?:a|my|the|an) (?:[a-z-]+ )?"
        r"(?:[a-z-]+ )?(?:job|position|internship)\b.*)", "{object}", "event", 0.9, single=True),
    english("business", "profile", r"(?:I|we) ~(?:run|own|opened) (?P<object>(?:an?|my|my own|our|our own)"
        r" (?:[a-z-]+ )?(?:business|company|shop|store|studio|bakery|caf[eé]|restaurant|gym|blog|channel|farm"
        r"|startup|salon|agency)\b.*)", "runs {object}", "event", 0.85, single=True),
)
STUDY = (
    english("studies", "profile", rf"(?:I ~study|{I_AM} ~(?:studying|majoring in|learning)|I ~major in)"
        r" (?P<object>(?!more|about|so|as|how (?!to)|for|from|new things|hard).+)", "studies {object}",
        "list", 0.85),
    english("studies", "profile",
        rf"(?:{I_AM} ~taking|I ~take|I ~signed up for|I ~enrolled in|I've ~started|I ~started)"
        r" (?P<object>(?:an? |some |the |my )?(?:(?!taking|doing|the|an?\b)[a-z-]+ ){1,4}?(?:class|classes"
        r"|course|courses|lessons?))\b.*", "takes {object}", "event", 0.9),
    english("education", "profile",
        r"I ~(?P<object>(?:graduated (?:from|with|in)|have an? (?:[a-z's]+ )?degree in) .+)", "{object}",
        "event", 0.9),
)
FAMILY = (
    english("family:name", "profile",
        rf"(?:my|our) (?:older |younger |little |big |eldest |youngest |oldest |baby )?{KIN}"
        r"(?:'s name is| is (?:named|called)|,| named| called|) (?P<object>[A-Z][a-z]+)\b.*",
        "has a {about} called {object}", "name", 0.9),
    english("family:work", "profile",
        rf"(?:my|our) (?:older |younger |little |big |eldest |youngest |baby )?{KIN}(?:'s|,? who is| is|"
        rf" works as) (?P<object>an? {OCCUPATION})\b.*", "has a {about} who is {object}", "role", 0.9),
    english("family:life", "profile",
        rf"(?:my|our) (?:older |younger |little |big |eldest |youngest |baby )?{KIN} ~(?P<object>(?:lives"
        rf"|works" r"|studies) (?:in|at|as|for|with) .+)", "has a {about} who {object}", "event", 0.85),
    english("family:age", "profile",
        rf"(?:my|our) (?:older |younger |little |eldest |youngest |baby )?{KIN} ~(?:is|turned|turns) (?:now"
        rf" )?" r"(?P<object>\d{1,2})\b(?! [a-z]+ (?:away|tall))(?: years old)?.*",
        "has a {about} aged {object}", "plain", 0.9),
    english("children", "profile",
        rf"{I_HAVE} (?P<object>{COUNT} (?:[a-z-]+ ){{0,2}}?(?:kids?|child|children|sons?|daughters?"
        r"|boys|girls|twins))\b.*", "has {object}", "plain", 0.9, single=True),
    english("siblings", "profile",
        rf"{I_HAVE} (?P<object>{COUNT} (?:[a-z-]+ ){{0,2}}?(?:sisters?|brothers?|siblings))\b.*",
        "has {object}", "plain", 0.9, single=True),
    english("pet:name", "profile",
        rf"(?:my|our) (?:new |old |little )?(?P<about>{ANIMAL})(?:'s name is| is (?:named|called)|,| named"
        r"| called|) (?P<object>[A-Z][a-z]+)\b.*", "has a {about} called {object}", "name", 0.9),
    english("pet", "profile",
        rf"{I_HAVE} (?:[a-z ]*(?:kids?|children|sons?|daughters?) and )?(?P<object>{COUNT} (?:[a-z]+"
        rf" ){{0,3}}?{ANIMAL}(?:,? (?:named|called)"
        rf" [A-Z][a-z]+(?: and [A-Z][a-z]+)?| and {COUNT} {ANIMAL})?)\b(?! (?:food|toy|bed|hair)).*",
        "has {object}", "plain", 0.9),
)
HEALTH = (
    english("allergy", "profile", rf"(?:{I_AM} ~|I have always been |I've ~been )allergic to (?P<object>.+)",
        "is allergic to {object}", "list", 0.95),
    english("allergy", "profile",
        r"I ~have an? (?:bad |severe |mild )?(?P<object>[a-z]+(?: [a-z]+)?) allergy\b.*",
        "is allergic to {object}", "list", 0.95),
    english("diet", "profile",
        rf"(?:{I_AM}|I ~went|I ~turned) ~(?:an? )?(?P<object>vegan|vegetarian|pescatarian|lactose[-"
        rf" ]intolerant" r"|gluten[- ]free|diabetic|coeliac|celiac)\b.*", "is {object}", "plain", 0.95,
        single=True),
    english("diet", "profile",
        r"I (?:(?:can't|cannot|can not) ~(?:eat|drink|have)|(?:don't|do not|never) ~(?:eat|drink))"
        r" (?P<object>(?!any|much|enough|time|that|the|a |to |it|more|out|well).+)",
        "does not eat or drink {object}", "list", 0.85),
)
TASTE = (
    english("preference", "preference",
        rf"(?:I ~(?:love|like|enjoy|adore)|(?:I've|I have) ~(?:loved|liked|enjoyed|been"
        rf" into)|{I_AM} ~(?:into|fond of|passionate about|a ~(?:big |huge )?fan of|keen on|obsessed with|a"
        rf" sucker for)" r"|I'm all about|I can't live without|I can't get enough of) (?P<object>.+)",
        "likes {object}", "list", 0.85),
    english("preference", "preference",
        rf"(?:I ~(?:hate|dislike|can't stand|cannot stand|detest|despise|loathe)"
        rf"|I (?:don't|do not) ~(?:like|enjoy|care for|love)|{I_AM} not ~(?:into|a (?:big |huge )?fan of|fond"
        rf" of" r"|big on|keen on)) (?P<object>.+)", "dislikes {object}", "list", 0.9),
    english("preference", "preference", r"I ~prefer (?P<object>.+)", "prefers {object}", "thing", 0.85),
    english("favorite", "preference",
        r"(?:one of )?my (?:all-time |absolute )?favou?rite (?P<about>[a-z]+(?: [a-z]+)?)"
        r" (?:is|are|has always been|would be) (?P<object>.+)", "has as favourite {about} {object}", "title",
        0.9),
    english("preference", "preference",
        r"(?P<object>[\w' -]+?)(?:'s| is| are) (?:definitely |also )?(?:one of |some of )?my"
        r" (?:all-time |absolute |main |biggest )?(?:favou?rites?|hobby|hobbies|passion|happy place|go-to)"
        r"(?: [a-z]+){0,2}$", "likes {object}", "list", 0.85),
    english("preference", "preference",
        r"(?P<object>[a-z]+ing(?: [a-z]+){0,3}?) (?:really |always |also )?(?:helps|keeps"
        r"|brings|gives|calms|relaxes|lets|fills|inspires|excites) me\b.*", "likes {object}", "list", 0.8),
    english("preference", "preference",
        r"(?P<object>[a-z]+ing(?: [a-z]+){0,3}?)(?:'s| is) (?:[a-z]+ ){0,3}way (?:for me )?to .*"
        r"\b(?:my|me)\b.*", "likes {object}", "list", 0.8),
)
SKILLS = (  # and possessions
    english("plays", "profile",
        r"(?:I|I've) ~(?:play|can play|played|been playing) (?:the )?(?P<object>piano|guitar|violin|cello"
        r"|flute|drums|clarinet|saxophone|trumpet|ukulele|bass|harp|chess|football|soccer|basketball|tennis"
        r"|badminton" r"|volleyball|baseball|hockey|golf|rugby|cricket)\b(?! (?:last|yesterday|with you)).*",
        "plays {object}", "plain", 0.9),
    english("speaks", "profile",
        r"I ~(?:speak|can speak) (?:fluent |a little |some )?(?P<object>[A-Z][a-z]+(?: and"
        r" [A-Z][a-z]+)?)\b.*", "speaks {object}", "plain", 0.95),
    english("owns", "custom",
        r"(?:I|we|I've|we've) ~(?:bought|got|own) (?:myself |ourselves )?(?P<object>(?:an?|my|our)"
        r"(?: [a-z-]+){0,3}? (?:car|bike|bicycle|motorbike|house|apartment|flat|condo|piano|guitar|camera"
        r"|laptop|computer" r"|phone|tablet|console|truck|van|boat|watch|tent|printer|drone|scooter))\b.*",
        "has {object}", "plain", 0.85),
    english("owns", "custom", r"I ~drive (?P<object>an? .+)", "drives {object}", "event", 0.9),
)
_MY = (
    r"(?:(?!.*\b(?:late|ex|future|someday|died|passed|lost|dream|miss|used to)\b).*(?<!of )\bmy"
    r" (?:older |younger |little |big |lovely )?"
)
MENTIONS = (
    english("family", "profile",
        _MY + r"(?P<object>husband|wife|fianc[eé]e?|boyfriend|girlfriend))\b(?!['-]).*", "has a {object}",
        "plain", 0.85),
    english("family", "profile",
        _MY + r"(?P<object>sons?|daughters?|kids|children|sisters?|brothers?|twins|nephews?|nieces?|grandkids"
        r"|stepson|stepdaughter))\b(?! from another| in[- ]law|['-]).*", "has {a_object}", "plain", 0.85),
    english("pet", "profile", _MY + rf"(?P<object>{ANIMAL}))\b(?! (?:food|toy|bed|hair)).*", "has {a_object}",
        "plain", 0.85),
    english("owns", "custom",
        _MY + r"(?:new )?(?P<object>car|bike|bicycle|motorbike|guitar|piano|violin|camera|van|truck|boat"
        r"|Toyota|Honda|Prius|Tesla|Volvo|Vespa|garden))\b.*", "has {a_object}", "plain", 0.8),
)
# fmt: on
