"""English fact patterns, tried in order at the start of each clause; the first of a topic wins."""

from __future__ import annotations

from hippocampus.providers.local_patterns import english

KIN = (
    r"(?P<about>husband|wife|partner|boyfriend|girlfriend|fianc[eé]e?|daughters?|sons?|kids|children|sisters?"
    r"|brothers?|twins?|stepson|stepdaughter|niece|nephew|grandson|granddaughter|roommate)"
)
PARENT = r"(?P<about>mom|mum|mother|dad|father|grandma|grandmother|grandpa|grandfather|aunt|uncle|cousin)"
ANIMAL = (
    r"(?:dogs?|pupp(?:y|ies)|pups?|cats?|kittens?|kitt(?:y|ies)|rabbits?|bunn(?:y|ies)|hamsters?|guinea pigs?"
    r"|parrots?|parakeets?|turtles?|tortoises?|horses?|pon(?:y|ies)|goldfish|snakes?|lizards?|geckos?|ferrets?"
    r"|chickens?|budgies?|canar(?:y|ies)|axolotls?)"
)
OCCUPATION = (
    r"(?:[a-z-]+ ){0,3}?(?:[a-z]+(?:ologist|ician|ographer|wright)|(?:software |civil |mechanical |data |electrical )?"
    r"engineer|nurse|teacher|developer|designer|doctor|lawyer|chef|cook|baker|writer|author|artist|architect"
    r"|accountant|programmer|professor|researcher|scientist|dentist|pharmacist|therapist|counselor|counsellor"
    r"|social worker|journalist|editor|translator|interpreter|photographer|musician|singer|actor|actress|dancer"
    r"|painter|potter|carpenter|plumber|driver|pilot|firefighter|police officer|paramedic|vet|veterinarian"
    r"|librarian|manager|consultant|analyst|economist|banker|salesperson|cashier|waiter|waitress|barista"
    r"|bartender|farmer|gardener|florist|tailor|hairdresser|barber|student|intern|freelancer|entrepreneur"
    r"|screenwriter|novelist|blogger|streamer|gamer|coach|trainer|tutor|surgeon|midwife|pastor|soldier|veteran"
    r"|single (?:mom|mum|dad|parent|mother|father))"
)
DAYS = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?"
TIME = (
    rf"(?:(?:on |this |next |coming )*{DAYS}|tomorrow|tonight|(?:this|next|the coming) (?:week|weekend|month|year"
    r"|spring|summer|fall|autumn|winter|semester|quarter)|in (?:January|February|March|April|May|June|July"
    r"|August|September|October|November|December)|in (?:a|two|three|four|a few|\d+) (?:days?|weeks?|months?|years?)"
    r"|later this (?:week|month|year)|soon|after graduation|for (?:Christmas|New Year|the holidays))"
)
_INSTRUCT = (
    r"(?:book|schedule|call|text|email|e-mail|message|phone|ring|contact|send|suggest|recommend|remind|use|write"
    r"|reply|answer|include|plan|order|add|put|set up|propose|offer|share|mention|address|speak|ping|disturb"
    r"|interrupt|invite|arrange|buy|cook|delete|post|charge|spend|round|translate|summari[sz]e|ask|quote)"
)
I_AM = r"(?:I'm|I am|I’m)"
I_HAVE = r"(?:I've|I have|I’ve|we've|we have|I've got|I have got|we've got|we have got|I got|we got)"

IDENTITY = (
    english(
        "name",
        "profile",
        r"(?:my name is|my name's|(?:please |you can |just )*call me) (?P<object>.+)",
        "is called {object}",
        "name",
        0.95,
        True,
    ),
    english(
        "age",
        "profile",
        rf"(?:{I_AM}|I ~turned|I ~just turned) (?P<object>\d{{1,2}})(?: years old| last .+"
        r"| this .+| today| yesterday)?$",
        "is {object} years old",
        "plain",
        0.9,
        True,
    ),
    english(
        "birthday",
        "profile",
        r"my birthday (?:is|'s|falls) (?:on )?(?:the )?(?P<object>\d.+|(?:jan|feb|mar|apr"
        r"|may|jun|jul|aug|sep|oct|nov|dec).+)",
        "has their birthday on {object}",
        "plain",
        0.95,
        True,
    ),
    english(
        "relationship_status",
        "profile",
        rf"{I_AM} ~(?P<object>married|single|engaged|divorced|widowed)$",
        "is {object}",
        "plain",
        0.9,
        True,
    ),
    english(
        "relationship_status",
        "profile",
        r"(?:I|we) ~(?:got|are) (?P<object>married|engaged|divorced)\b.*",
        "is {object}",
        "plain",
        0.9,
        True,
    ),
    english(
        "relationship_status",
        "profile",
        r"(?:I've|we've|I have|we have) been (?P<object>married for .+)",
        "has been {object}",
        "plain",
        0.9,
        True,
    ),
)
PLACES = (
    english(
        "home",
        "profile",
        rf"(?:I ~live|{I_AM} ~living|we ~live|we're ~living|{I_AM} ~based) (?:in|near|at)"
        r" (?P<object>.+)",
        "lives in {object}",
        "place",
        0.95,
        True,
    ),
    english(
        "home",
        "profile",
        r"(?:I|we|I've|we've|I have|we have) ~(?:moved|relocated) (?:back )?to (?P<object>.+)",
        "moved to {object}",
        "place",
        0.9,
        True,
    ),
    english(
        "origin",
        "profile",
        rf"(?:{I_AM} ~from|I ~come from|I ~grew up in|I was ~(?:born|raised) in"
        r"|I was ~born and raised in|my hometown is|my home country is|my home country,) (?P<object>.+)",
        "is from {object}",
        "place",
        0.9,
        True,
    ),
    english(
        "origin",
        "profile",
        r".*\bmy home ?(?:country|town), (?P<object>[A-Z]\w+)",
        "is from {object}",
        "place",
        0.85,
        True,
    ),
)
WORK = (
    english(
        "occupation",
        "profile",
        rf"(?:I ~work|{I_AM} ~working) as (?:a|an|the) (?P<object>.+)",
        "works as {object}",
        "role",
        0.95,
        True,
    ),
    english(
        "occupation",
        "profile",
        rf"{I_AM} ~an? (?P<object>{OCCUPATION})\b(?! of\b).*",
        "is {object}",
        "role",
        0.9,
        True,
    ),
    english(
        "occupation",
        "profile",
        r"I've been an? (?P<object>.+?) (?:for|since) .+",
        "is {object}",
        "role",
        0.85,
        True,
    ),
    english(
        "employer",
        "profile",
        rf"(?:I ~work|{I_AM} ~working|I ~started working) (?:at|for)"
        r" (?P<object>.+)",
        "works at {object}",
        "org",
        0.9,
        True,
    ),
    english(
        "employer",
        "profile",
        r"I ~(?:joined|got hired (?:at|by)|was hired by|started at) (?P<object>[A-Z].+)",
        "works at {object}",
        "org",
        0.8,
        True,
    ),
    english(
        "field_of_work",
        "profile",
        rf"(?:I ~work|{I_AM} ~working) in (?P<object>.+)",
        "works in {object}",
        "role",
        0.85,
        True,
    ),
    english(
        "work_change",
        "profile",
        r"I ~(?P<object>(?:quit|left|lost|resigned from) my (?:old |current )?job\b.*)",
        "{object}",
        "plain",
        0.9,
        True,
    ),
    english(
        "work_change",
        "profile",
        r"I ~(?:got|landed|accepted|started) (?P<object>(?:a|my|the) (?:new )?"
        r"(?:[a-z-]+ )?(?:job|position|role|internship)\b.*)",
        "got {object}",
        "plain",
        0.85,
        True,
    ),
    english(
        "business",
        "profile",
        r"(?:I|we) ~(?:run|own|started|opened) (?P<object>(?:a|an|my|my own|our|our own)"
        r" (?:[a-z-]+ )?(?:business|company|shop|store|studio|bakery|caf[eé]|restaurant|gym|blog|channel|farm"
        r"|startup|salon|agency)\b.*)",
        "runs {object}",
        "thing",
        0.85,
        True,
    ),
)
STUDY = (
    english(
        "studies",
        "profile",
        rf"(?:I ~study|{I_AM} ~(?:studying|majoring in|learning)|I ~major in)"
        r" (?P<object>.+)",
        "studies {object}",
        "thing",
        0.85,
    ),
    english(
        "studies",
        "profile",
        rf"(?:{I_AM} ~taking|I ~take|I ~signed up for|I ~enrolled in|I ~started taking"
        r"|I've ~enrolled in) (?P<object>(?:an? |some )?.*?\b(?:class|classes|course|courses|lessons?|program"
        r"|degree))\b.*",
        "takes {object}",
        "thing",
        0.85,
    ),
    english(
        "education",
        "profile",
        r"I ~(?:graduated (?:from|with|in)|have a degree in|have a master's in)"
        r" (?P<object>.+)",
        "graduated ({object})",
        "thing",
        0.9,
    ),
)
FAMILY = (
    english(
        "family",
        "profile",
        rf"(?:my|our) (?:older |younger |little |big |eldest |youngest |oldest |baby )?{KIN}"
        r"(?:'s name is| is (?:named|called)|, | named | called )"
        r"(?P<object>[A-Z][a-z]+)\b.*",
        "has a {about} called {object}",
        "name",
        0.85,
    ),
    english(
        "family",
        "profile",
        r"(?:my|our) " + PARENT + r"(?:'s name is| is (?:named|called)| named )"
        r" ?(?P<object>[A-Z][a-z]+)\b.*",
        "has a {about} called {object}",
        "name",
        0.9,
    ),
    english(
        "children",
        "profile",
        rf"{I_HAVE} (?P<object>(?:a|an|one|two|three|four|five|\d|twin) (?:[a-z-]+ )?"
        r"(?:kids?|children|sons?|daughters?|boys|girls|twins))\b.*",
        "has {object}",
        "plain",
        0.85,
        True,
    ),
    english(
        "siblings",
        "profile",
        rf"{I_HAVE} (?P<object>(?:a|an|one|two|three|four|\d) (?:[a-z-]+ )?(?:sisters?"
        r"|brothers?|siblings))\b.*",
        "has {object}",
        "plain",
        0.85,
        True,
    ),
    english(
        "pet",
        "profile",
        rf"(?:my|our) (?P<about>{ANIMAL})(?:'s name is| is (?:named|called)|, | named"
        r"| called | )(?P<object>[A-Z][a-z]+)\b.*",
        "has a {about} called {object}",
        "name",
        0.85,
    ),
    english(
        "pet",
        "profile",
        rf"(?:{I_HAVE}|I ~adopted|we ~adopted|I ~have|we ~have) (?P<object>(?:a|an|another|one"
        rf"|two|three|four|\d|some) (?:[a-z]+ )*?{ANIMAL}(?: (?:named|called) [A-Z][a-z]+(?: and [A-Z][a-z]+)?)?)"
        r"\b.*",
        "has {object}",
        "plain",
        0.85,
    ),
)
HEALTH = (
    english(
        "allergy", "profile", rf"{I_AM} ~allergic to (?P<object>.+)", "is allergic to {object}", "thing", 0.95
    ),
    english(
        "allergy",
        "profile",
        r"I ~have an? (?P<object>[a-z ]+?) allergy\b.*",
        "is allergic to {object}",
        "thing",
        0.95,
    ),
    english(
        "diet",
        "profile",
        rf"{I_AM} ~(?:an? )?(?P<object>vegan|vegetarian|pescatarian|lactose[- ]intolerant"
        r"|gluten[- ]free|diabetic|coeliac|celiac)\b.*",
        "is {object}",
        "plain",
        0.95,
        True,
    ),
    english(
        "diet",
        "profile",
        r"I ~(?:can't|cannot|can not|don't|do not) ~(?:eat|drink|have|touch) (?P<object>(?!any"
        r"|much|enough|time|that|the|a |to |it).+)",
        "does not eat or drink {object}",
        "thing",
        0.8,
    ),
)
TASTE = (
    english(
        "preference",
        "preference",
        rf"(?:I ~(?:love|like|enjoy|adore)|{I_AM} ~(?:into|fond of|passionate about"
        rf"|a (?:big |huge )?fan of|keen on|obsessed with)|I'm all about) (?P<object>.+)",
        "likes {object}",
        "thing",
        0.85,
    ),
    english(
        "preference",
        "preference",
        rf"(?:I ~(?:hate|dislike|can't stand|cannot stand|detest|despise|loathe)"
        rf"|I (?:don't|do not) ~(?:like|enjoy|care for|love)|{I_AM} not ~(?:into|a (?:big |huge )?fan of|fond of"
        r"|big on|keen on)) (?P<object>.+)",
        "dislikes {object}",
        "thing",
        0.9,
    ),
    english("preference", "preference", r"I (?:~prefer) (?P<object>.+)", "prefers {object}", "thing", 0.85),
    english(
        "favorite",
        "preference",
        r"my (?:all-time |absolute )?favou?rite (?P<about>[a-z]+(?: [a-z]+)?) (?:is|are"
        r"|has always been|would be) (?P<object>.+)",
        "has as favourite {about} {object}",
        "thing",
        0.9,
    ),
    english(
        "preference",
        "preference",
        r"(?P<object>[\w' -]+?) (?:is|are) (?:one of )?my (?:all-time |absolute"
        r" |main |biggest )?(?:favou?rites?|hobby|hobbies|passion|happy place|go-to)(?: [a-z]+){0,2}$",
        "likes {object}",
        "thing",
        0.85,
    ),
)
HABITS = (
    english(
        "habit",
        "custom",
        rf"(?P<object>(?:every (?:single )?(?:morning|evening|night|day|week|weekend|month|year"
        rf"|summer|winter|spring|{DAYS})|on (?:{DAYS}|weekends|weekdays)|each (?:morning|night|day|week)),? (?:I"
        r"|we) .+)",
        "{object}",
        "action",
        0.85,
    ),
    english(
        "habit",
        "custom",
        r"(?:I|we) (?P<object>(?!was|were|had|did|saw|met|got|used|went|could|would|can|might|'"
        rf"|may|should|want|need|have to)[a-z]+ (?:.+ )?(?:every (?:single )?(?:morning|evening|night|day|week"
        rf"|weekend|month|year|summer|winter|other day|{DAYS})|(?:once|twice|three times|four times|\d times) a"
        rf" (?:day|week|month|year)|on (?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days|on weekends|each (?:morning"
        r"|day|week))\b.*)",
        "{object}",
        "action",
        0.85,
    ),
    english(
        "habit",
        "custom",
        r"I ~(?:usually|normally|often|typically|regularly) (?P<object>(?!think|feel|wonder|have"
        r"|am|get|find)[a-z]+ .+)",
        "usually {object}",
        "action",
        0.75,
    ),
)
SKILLS = (
    english(
        "plays",
        "profile",
        r"I ~(?:play|can play) (?:the )?(?P<object>piano|guitar|violin|cello|flute|drums"
        r"|clarinet|saxophone|trumpet|ukulele|bass|harp|chess|football|soccer|basketball|tennis|badminton"
        r"|volleyball|baseball|hockey|golf|rugby|cricket)\b.*",
        "plays {object}",
        "plain",
        0.95,
    ),
    english(
        "speaks",
        "profile",
        r"I ~(?:speak|can speak) (?:fluent |a little |some )?(?P<object>[A-Z][a-z]+(?: and"
        r" [A-Z][a-z]+)?)\b.*",
        "speaks {object}",
        "plain",
        0.95,
    ),
    english(
        "owns",
        "custom",
        r"(?:I|we|I've|we've) ~(?:bought|got|own) (?:myself |ourselves )?(?P<object>(?:a|an|my"
        r"|our)(?: [a-z-]+){0,3}? (?:car|bike|bicycle|motorbike|house|apartment|flat|condo|piano|guitar|camera"
        r"|laptop|computer|phone|tablet|console|truck|van|boat|watch|tent|printer|drone|scooter))\b.*",
        "has {object}",
        "thing",
        0.85,
    ),
    english("owns", "custom", r"I ~drive (?P<object>an? .+)", "drives {object}", "thing", 0.9),
)
PLANS = (
    english(
        "plan",
        "custom",
        rf"(?:{I_AM}|we're|we are) ~(?:planning (?:on|to)|hoping to|going to|gonna|about to"
        r"|thinking (?:of|about)|looking to|aiming to|saving up (?:to|for)|preparing (?:for|to)|training for)"
        r" (?P<object>.+)",
        "plans: {object}",
        "action",
        0.8,
    ),
    english("plan", "custom", r"(?:I|we) ~plan (?:to|on) (?P<object>.+)", "plans: {object}", "action", 0.85),
    english(
        "plan",
        "custom",
        r"(?:I'll|we'll|I will|we will|I'm|we're) (?P<object>(?!be |let|keep|see you|check|try"
        rf"|do |never|always|not )[a-z]+ (?:.+ )?{TIME}\b.*)",
        "plans: {object}",
        "action",
        0.8,
    ),
    english(
        "goal",
        "custom",
        r"(?:my (?:dream|goal|aim) is|I ~want|I ~hope|it's (?:always )?been my dream) to"
        r" (?P<object>(?:become|learn|start|open|travel|visit|move|buy|write|publish|adopt|study|run|get into|own"
        r"|build|make it as|work as|go to|teach|act|record|finish|climb|sell|help) .+)",
        "wants to {object}",
        "action",
        0.75,
    ),
)
RULES = (
    english(
        "rule",
        "rule",
        rf"(?:please |and |from now on,? |remember:? |also,? )*(?P<object>(?:never|always|don't ever"
        rf"|do not|don't) (?:ever )?{_INSTRUCT}\b.+)",
        "{object}",
        "rule",
        0.9,
    ),
    english(
        "rule",
        "rule",
        rf"(?P<object>(?:no|never any) [a-z -]*?(?:meetings?|calls?|emails?|appointments?|messages?"
        r"|flights?|notifications?|work)(?: [a-z]+)? (?:on|before|after|during|at) .+)",
        "{object}",
        "rule",
        0.9,
    ),
    english("rule", "rule", rf"(?P<object>(?:never|not) on (?:a )?{DAYS}.*)", "{object}", "rule", 0.8),
    english(
        "rule",
        "rule",
        rf"(?:I'd like you to|I want you to|I need you to|you should|you must|make sure (?:that )?"
        rf"you|make sure to) (?P<object>(?:always|never|not) {_INSTRUCT}\b.+)",
        "{object}",
        "rule",
        0.9,
    ),
    english(
        "rule",
        "rule",
        r"I (?P<object>(?:never|don't|do not) (?:take|do|schedule|answer|accept|work|attend|book)"
        rf" .*\b(?:on (?:a )?{DAYS}|on weekends|before|after|during)\b.*)",
        "{object}",
        "rule",
        0.85,
    ),
)

PATTERNS = (*IDENTITY, *PLACES, *WORK, *STUDY, *FAMILY, *HEALTH, *RULES, *TASTE, *SKILLS, *HABITS, *PLANS)
