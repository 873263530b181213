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
NAME = r"(?![A-Za-z]+n['’]t\b)[A-Z][\w'’-]*[a-z][\w'’-]*"
KIN_MODIFIER = (
    r"(?:older |younger |little |big |eldest |youngest |oldest |elder |middle |baby |twin |new |dear |late |first "
    r"|second )*"
)
KIN = (
    r"(?P<about>(?:mother|father|sister|brother|son|daughter)-in-law|girlfriend|boyfriend|fianc[eé]e?|husband|wife"
    r"|partner|boyfriend|girlfriend|fianc[eé]e?|daughter|son|sister|brother|stepson"
    r"|stepdaughter|niece|nephew|grandson|granddaughter|roommate|flatmate|housemate|stepmum|stepmom|stepdad|twin|mom"
    r"|mum|mother|dad|father|grandma"
    r"|grandmother"
    r"|grandpa|grandfather|aunt|uncle|cousin|best friend|boss|manager|doctor|dentist|grandson|granddaughter|gran|nan"
    r"|nana"
    r"|grandad|granddad|papa|mama|godson|goddaughter)"
)
ANIMAL = (
    r"(?:dogs?|pupp(?:y|ies)|pups?|cats?|kittens?|kitt(?:y|ies)|rabbits?|bunn(?:y|ies)|hamsters?|guinea pigs?"
    r"|parrots?|parakeets?|turtles?|tortoises?|horses?|pon(?:y|ies)|goldfish|snakes?|lizards?|geckos?"
    r"|ferrets?|spaniels?|terriers?|labradors?|retrievers?|poodles?|collies?|beagles?|corgis?|dachshunds?|tabb"
    r"(?:y|ies)"
    r"|chickens?|budgies?|canar(?:y|ies)|axolotls?)"
)
#: Words before it belong to it: with a determiner between, it is somebody else's.
OCCUPATION = (
    r"(?:(?!(?:an?|the|my|our|his|her|their|your|this|that|another|some) )[a-z-]+ ){0,3}?"
    r"(?:[a-z]+(?:ologist|ician|ographer|wright)|engineer|nurse|teacher|developer|designer"
    r"|supervisor|foreman|porter|(?:co-|half-|part-)?owner|vice[- ]principal"
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
    r"|soldier|veteran|team lead|tech lead|director|officer|assistant|clerk|technician|mechanic|electrician"
    r"|welder|cook"
    r"|receptionist|secretary|paralegal|judge|solicitor|barrister|vet|optician|physio|physiotherapist|radiographer"
    r"|carer"
    r"|caregiver|nanny|au pair|childminder|postman|courier|priest|vicar|pastor|postdoc|lecturer|headteacher|principal"
    r"|apprentice|trainee|founder|ceo|cto|producer|conductor|composer|builder|cleaner|baker|bookseller|jeweller"
    r"|jeweler"
    r"|administrator|specialist|operator|plasterer|roofer|joiner|mason|fisherman|sailor|cab(?:bie| driver)|instructor"
    r"|civil servant|diplomat|detective|dietitian|nutritionist|psychologist|osteopath|beekeeper|illustrator|animator"
    r"|housewife|homemaker|stay-at-home (?:mom|mum|dad|parent)|pensioner|single (?:mom|mum|dad|parent|mother|father))"
)
#: 'My husband called Jonas yesterday' does not say what he is called.
PHONED = (
    r" (?:called|named) [A-Z][\w'’-]+ (?:yesterday|today|tonight|earlier|again|back|twice|about|just now|a minute"
    r"|an hour"
    r"|to|for|because|so|when|while|before|after|until|every|over|up|on|at|in|from|first|last|this|the|a|an"
    r"|and (?:told|said|asked)|best|captain|his|her|their|names)\b"
)
_NOT_PHONED = f"(?!{PHONED})"
MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_NTH = r"\d{1,2}(?:st|nd|rd|th)?"
#: A day of the calendar, with or without its month.
DATE = (
    rf"(?:(?:the )?{_NTH}(?: of)? {MONTH}\b(?:,? \d{{4}})?|{MONTH} (?:the )?{_NTH}\b(?:,? \d{{4}})?"
    r"|the \d{1,2}(?:st|nd|rd|th)(?: of the month)?(?! (?:floor|chapter|time|century|grade|street|avenue|birthday"
    r"|anniversary|edition|place|season|row|hole|day|week|episode|book|one|man|person|attempt|try|round|lap|mile|kilometre"
    r"|street|arrondissement|largest|biggest|best|most)\b)|(?:the |on the )(?:(?:four|fif|six|seven|eigh|nin|ten"
    r"|eleven|twelf"
    r"|[a-z]+teen|twentie|thirtie)th|(?:twenty|thirty)[- ](?:first|second|third|[a-z]+th))(?: of [A-Z][a-z]+)?"
    r"(?=[,.;!?]|$| at\b| with\b| of\b)|\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4})"
)
_SEASON = r"(?:spring|summer|fall|autumn|winter)"
_NUMBER = r"(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|twelve|\d+|a few|a couple of|several|many)"
#: A time that is still to come, or that may be.
TIME = (
    rf"(?:(?:on |by |until |till |from |starting (?:on )?|before |after |around )?(?:{DATE}|(?:next |this coming "
    rf"|coming )+{DAYS})"
    rf"|(?:on |this |next |coming (?!on )|every )+{DAYS}(?: (?:morning|afternoon|evening|night))?"
    r"|tomorrow(?: (?:morning|afternoon|evening|night))?|tonight"
    r"|(?:later )?(?:this|next|the coming|the following) (?:week|weekend|month|year|term|semester|quarter|school year|"
    rf"{MONTH}|{_SEASON})"
    rf"|(?:in|by|until|till|from|around|at the (?:end|beginning|start) of|(?:end|start|beginning|middle) of"
    rf"|early|mid|late|in early|in late|in"
    rf" mid)[ -]"
    rf"(?:{MONTH}|(?:the )?{_SEASON}|20\d\d)(?: 20\d\d)?"
    rf"|(?:in|within) {_NUMBER} (?:days?|weeks?|months?|years?)(?:' time)?|in a fortnight"
    rf"|{_NUMBER} (?:days?|weeks?|months?|years?) from (?:now|today)|(?:the )?(?:week|month|weekend) after next"
    r"|later this (?:week|month|year)|soon|after (?:graduation|school|my exams|work|Christmas|Easter|New Year)"
    r"|(?:for|at|over|before) (?:Christmas|Easter|New Year(?:'s)?|Thanksgiving|Diwali|Eid|Hanukkah|the holidays"
    r"|half[- ]term"
    r"|the weekend)|the (?:first|second|third|last) week (?:of|in) [A-Z]?\w+)"
)
_ORG_WORD = (
    r"(?:hospital|clinic|school|college|university|uni|library|museum|bank|firm|company|agency|studio|restaurant|cafe"
    r"|café"
    r"|bakery|shop|store|bookshop|startup|start-up|studio|lab|institute|council|ministry|factory|plant|warehouse"
    r"|hotel|bar|pub"
    r"|gym|nursery|kindergarten|practice|surgery|pharmacy|office|garage|airline|charity|ngo|newspaper|magazine"
    r"|publisher"
    r"|theatre|theater|zoo|farm|vineyard|brewery|salon|ward|department|team|police|fire (?:brigade|station)|army|navy)"
)
_HEALTH = (
    r"(?:asthma|dementia|alzheimer's|cancer|parkinson's|multiple sclerosis|diabetes|type (?:1|2|one|two) diabetes"
    r"|migraines?|epilepsy|arthritis|anxiety|depression|insomnia|adhd"
    r"|autism"
    r"|dyslexia|eczema|psoriasis|hay fever|c(?:o)?eliac disease|coeliac|celiac|ibs|crohn's|high blood pressure|low"
    r" blood pressure"
    r"|high cholesterol|gout|sciatica|tinnitus|vertigo|scoliosis|anaemia|anemia|hypothyroidism|endometriosis|reflux"
    r"|an? (?:bad |weak"
    r" |dodgy )?(?:back|knee|hip|heart condition|pacemaker|thyroid condition|slipped disc|hernia)|vertigo"
    r"|claustrophobia)"
)
DRUG = (
    r"(?:[a-z]{2,}(?:pril|sartan|olol|statin|formin|prazole|cillin|mycin|dipine|oxetine|traline|citalopram|zepam|zolam"
    r"|parin|thyroxine|purinol|semide|thiazide|gliptin|gliflozin|glutide|profen|tadine|lukast|triptan|dronate|oxaban"
    r"|tinib|mab|azine|apine|idone|afil|vir|cycline|floxacin|conazole|sone|solone|terol|tropium)s?|insulin|aspirin"
    r"|paracetamol|adderall|ritalin|concerta|lithium|hrt|melatonin|antidepressants?|antihistamines?|antibiotics"
    r"|beta ?blockers?|(?:an? )?inhaler|statins?|blood thinners|painkillers|steroids|(?:iron|water|heart|blood"
    r" pressure"
    r"|sleeping|thyroid|migraine|arthritis) (?:tablets?|pills?|meds)|vitamin [a-z]\d*|the pill|chemo(?:therapy)?"
    r"|radiotherapy|dialysis|physio|physiotherapy|physical therapy|cbt|counselling|counseling|a therapist"
    r"|a counsell?or)"
)
_REACTS = (
    r"(?:(?:makes?|give[s]?|brings?) (?:me|my (?:throat|lips?|mouth|tongue|face|eyes|skin|stomach|nose))(?: (?:out"
    r"|come out))?"
    r" (?:in )?(?:close up|swell|itch|tingle|hives|(?:a |an )?(?:[a-z]+ )?rash|sick|throw up|sneeze|ill|migraines?"
    r"|cramps|wheeze"
    r"|puff up|burn)|(?:disagrees?|doesn't agree|don't agree) with me|sends? me to (?:hospital|the hospital|the er"
    r"|a&e))"
)


def listed(member: str) -> str:
    """Return a regex of one member or a list of them: 'the cello, drums and a bit of guitar'."""
    also = rf"(?:also |then |the |some |an? (?:bit of |little )?)*{member}"
    return rf"{member}(?:(?:, (?:and )?| and | & ){also})*"


_AGE = (
    r"(?:(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:[- ](?:one|two|three|four|five|six|seven|eight"
    r"|nine))?"
    r"|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen)"
)
_PROPER = (
    r"(?:the )?(?!I\b|I'|(?:Mum|Mom|Dad|Gran|Nan|Grandma|Grandpa)\b)[A-Z][\w'’-]*"
    r"(?: (?:(?:of|de|la|del|the) )?(?!I\b|I')[A-Z][\w'’-]*)*"
)
#: Names of places that nothing is said of: not 'Rome and Tom hasn't'.
PLACE_NAMES = (
    rf"{listed(_PROPER)}(?=$|[,.;!]| (?!(?:is|are|was|were|has|had|did|does|went|came|said|says|loved|liked)\b"
    r"|[a-z]+n't\b)[a-z])"
)
NAMES = listed(r"(?!I\b|I')[A-Z][\w'’-]*[a-z]")
_LANGUAGES = listed(
    r"(?:(?:fluent|basic|conversational|native|some|broken|decent|good|a little bit of|a little|a bit of) )?"
    r"[A-Z][a-z]{2,}"
)
INSTRUMENTS = listed(
    r"(?:piano|guitar|violin|cello|viola|flute|drums|double bass|bass|keys|keyboards?|clarinet|saxophone|sax|trumpet"
    r"|trombone|ukulele|harp|organ|accordion|oboe|percussion|lead guitar|fiddle|banjo|mandolin|recorder|bassoon|tuba)\b"
)
_SPORTS = (
    r"(?:chess|football|soccer|basketball|tennis|badminton|volleyball|baseball|hockey|golf|rugby|cricket|squash|padel"
    r"|netball|darts|snooker)\b"
)
#: 'My brothers are Dutch and German' names nobody.
_NO_KIND = r"(?!.*(?:ish|ese|ian|can|nch|tch|man|lic|lim|ist|ios|ans|eek|iss|ew)s?\b)"
_DESCRIBED = (
    r"(?!(?:all |very |quite |really |too |so |pretty |a bit |rather |mostly )*(?:boring|varied|limited|expensive"
    r"|simple"
    r"|different|few|weird|changing|none|private|many|mixed|broad|cheap|similar|same|wrong|rubbish|terrible|fine|good|great"
    r"|bad|better|best|clear|obvious|open|taken|gone|here|there|not|my|our|on|in|at|by|from|with|of|up|out|based|often"
    r"|usually|sold|full|closed|available)\b)"
)
_SEVERAL_KIN = (
    r"(?P<about>daughters|sons|kids|children|sisters|brothers|nieces|nephews|cousins|aunts|uncles|grandsons"
    r"|granddaughters|grandchildren|grandkids|stepsons|stepdaughters|boys|girls|twins)"
)


# Tables, read by row.
# fmt: off
IDENTITY = (
    english("name", "profile", rf"I'm (?P<object>{NAME})(?: {NAME})?(?: here|, by the way|, nice to meet you|,? and"
        rf" (?:I|my)\b.*)$",
        "is called {object}", "name", 0.9, single=True),
    english("name", "profile", r"I'm (?P<object>[a-z]+)(?: btw| by the way)?,? (?:and )?(?:I'm )?\d{1,2}\b.*",
        "is called {object}",
        "given_name", 0.85, single=True),
    english("age", "profile", r"I'm (?!(?:in|on|at|of|with|from|for|into|doing|having) )[a-z]+(?: btw| by the way)?,?"
        r" (?:and )?(?:I'm )?(?P<object>\d{1,2})\b(?! (?:min"
        r"|hour|day|week|month|km"
        r"|mile|%)).*", "is {object} years old", "plain", 0.85, single=True),
    english("pronouns", "profile", r"my pronouns are (?P<object>.+)", "has the pronouns {object}",
        "plain", 0.95, single=True),
    english("age", "profile", rf"(?:{I_AM} ~|I've just turned |I'm turning )(?P<object>\d{{1,2}})(?: now| this year|"
        rf" today)?$",
        "is {object} years old", "plain", 0.9, single=True),
    english("relationship_status", "profile", rf"(?P<about>{NAME}) and I ~(?:got|are|have got|are getting)"
        rf" (?P<object>engaged|married)\b.*",
        "is {object} to {about}", "plain", 0.9, single=True),
    english("relationship_status", "profile", rf"(?:{I_AM}|I got|we got|we're|we are) ~(?P<object>(?:engaged|married)"
        rf" to (?:my |a )?[A-Z]?\w+)\b.*",
        "is {object}", "plain", 0.9, single=True),
    english("relationship_status", "profile", r"(?:we've|we have|I've|I have) ~been (?P<object>(?:married|together"
        r"|engaged) (?:for )?[\w-]+"
        r"(?: [\w-]+)? (?:years|months)(?: (?:this|next|in) \w+)?)\b.*", "has been {object}",
        "plain", 0.9, single=True),
    english("relationship_status", "profile", r"(?:I|we) ~(?P<object>broke up|split up|separated)\b.*", "{object}",
        "plain", 0.85, single=True),
    english("contact", "profile", r"my (?P<about>e-?mail(?: address)?|phone number|number|address|postcode|zip"
        r" code)(?:'s| is) (?:now )?(?P<object>\S.+)",
        "has the {about} {object}", "plain", 0.9),
    english("measure", "profile", r"my (?P<about>(?:shoe |ring |dress |shirt )?size|height|weight|blood (?:type"
        r"|group)|budget|time ?zone|pace"
        r"|salary|rent|resting heart rate)(?:'s| is)(?: now| about| around)? (?P<object>.*\w.*)",
        "has the {about} {object}", "plain", 0.85),
    english("name", "profile", r"(?:my name is|my name's|(?:please |you can |just )*call me) (?P<object>.+)",
        "is called {object}", "name", 0.95, single=True),
    english("name", "profile",
        rf"{I_AM} (?P<object>[A-Z][a-z]+(?<!ish)(?<!ese)(?<!ian)(?<!can)(?<!nch)(?<!tch)(?<!ing))$",
        "is called {object}", "name", 0.7, single=True),
    english("age", "profile", rf"{I_AM} ~(?P<object>{_AGE})(?: years old| now| this year)?$", "is {object} years old",
        "plain", 0.9, single=True),
    english("age", "profile", rf"{I_AM} ~(?P<object>\d{{1,2}}) years old\b.*", "is {object} years old",
        "plain", 0.95, single=True),
    english("age", "profile", r"I ~turned (?P<object>\d{1,2})\b.*", "is {object} years old", "plain", 0.95,
        single=True),
    english("birthday", "profile",
        rf"my birthday(?:'s| is| falls) (?:on )?(?:the )?(?P<object>\d.*{MONTH}|{MONTH} .*\d\S*)",
        "has their birthday on {object}", "plain", 0.95, single=True),
    english("birthday", "profile",
        rf"my birthday(?:'s| is| falls) in (?P<object>(?:early |mid[- ]|late )?{MONTH})(?: too)?$",
        "has their birthday in {object}", "plain", 0.95, single=True),
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
    english("home", "profile", rf"{I_AM} .*\b(?:based|living) in (?P<object>[A-Z].+)", "lives in {object}",
        "place", 0.9, single=True),
    english("home", "profile", r"(?:I|we|I've|we've) ~(?:moved|relocated|settled|downsized) (?:back )?(?:in)?to"
        r" (?:an?|my|our|the|my own|our own)"
        r" (?:[a-z-]+ ){0,3}?(?:flat|house|apartment|place|bungalow|cottage|studio|condo|room|home) (?:in|at|on|near)"
        r" (?P<object>.+)",
        "lives in {object}", "place", 0.9, single=True),
    english("home", "profile", rf"(?:I've|I have|we've|we have) ~(?:been )?(?:(?:living|lived) )?(?:in|at|near)"
        rf" (?P<object>[A-Z].*?) (?:for |almost |nearly |over |about )*(?:{_NUMBER}"
        r" (?:years?|months)|since)\b.*", "lives in {object}", "place", 0.85, single=True),
    english("home", "profile", rf"(?:{I_AM}|we're|we are) ~(?:in|at) (?P<object>[A-Z][\w' -]+?) (?:now|these days|at"
        rf" the moment)$",
        "lives in {object}", "place", 0.8, single=True),
    english("home", "profile", r"my (?:new |current )?(?:flat|house|apartment|place|home)(?:'s| is) (?:in|near)"
        r" (?P<object>.+)",
        "lives in {object}", "place", 0.9, single=True),
    english("home", "profile", r"(?:I|we|I've|we've) ~(?:bought|got|rented|found) (?:an?|our|my) (?:[a-z-]+"
        r" ){0,3}?(?:flat|house|apartment|place|bungalow"
        r"|cottage|condo) (?:in|near) (?!.*\b(?:marathon|race|team|squad|choir|university|uni|college|school|class"
        r"|course"
        r"|programme|program|play|final|band|league|exam)\b)(?P<object>.+)", "has a home in {object}",
        "place", 0.8, single=True),
    english("home", "profile",
        rf"(?:I ~live|{I_AM} ~living|we ~live|(?:we're|we are) ~living|{I_AM} ~based) (?:out )?(?:in|near|at|on)"
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
    english("occupation", "profile", r"I(?:'ll| will) ~be (?P<object>(?:an? |the )?(?:[a-z'-]+ ){1,3}(?:for|at"
        r"|with) (?:the"
        r" |an? |[A-Z])[^,]+?)(?:,.*| (?:from|starting|as of) .*)?$",
        "will be {object}", "workplace", 0.85, single=True),
    english("work_history", "profile", r"I ~(?P<object>(?:taught|nursed|drove|farmed|served|worked|ran|cooked"
        r"|built) .*"
        r"\b(?:for )?(?:(?:[a-z]+ty|[a-z]+teen|ten|five|six|seven|eight|nine|\d+)(?:[- ][a-z]+)? years|(?:all "
        r")?my (?:whole "
        r")?(?:working )?life)\b.*)", "{object}", "event", 0.85),
    english("work_history", "profile", r"I ~(?P<object>was an? (?:[a-z-]+ ){1,3}(?:at|in|for|with"
        r"|on) .*\bfor (?:(?:almost"
        r"|nearly|over|about|more than) )?(?:[a-z-]+|\d+)(?: odd)? years\b.*)", "{object}", "event", 0.85),
    english("occupation", "profile", rf"(?:I ~work|{I_AM} ~working) (?:as|like) (?P<object>an? .+)",
        "works as {object}", "role", 0.95, single=True),
    english("occupation", "profile", rf"I ~(?:start|begin|started|am starting) .*?\bas (?P<object>(?:an? |the"
        rf" )?{OCCUPATION})\b.*",
        "works as {object}", "role", 0.85, single=True),
    english("occupation", "profile", rf"{I_AM} ~(?P<object>(?:an? |the )?(?:retired |former )?{OCCUPATION} (?:at|in"
        rf"|on|for|with) (?:an? |the )?[\w' -]+)",
        "is {object}", "workplace", 0.9, single=True),
    english("occupation", "profile", rf"{I_AM} ~(?P<object>(?:an? |the )(?:retired |former ){OCCUPATION})\b.*",
        "is {object}", "role", 0.9, single=True),
    english("occupation", "profile", r"I ~teach (?P<object>(?!you|him|her|them|myself|me|it\b)[a-z]+.*\b(?:at|in"
        r"|to)\b (?!sing|swim|read|cook|drive).*)$",
        "teaches {object}", "workplace", 0.85, single=True),
    english("occupation", "profile", r"I ~teach (?P<object>(?!you|him|her|them|myself|me)[a-z]+(?:"
        r" [a-z]+){0,3}?)(?: (?:until|before|for|till) .*)?$",
        "teaches {object}", "role", 0.8, single=True),
    english("occupation", "profile", rf"{I_AM} ~doing (?P<object>(?!an? |the |my |some |this |it\b|well|fine|good"
        rf"|ok)[a-z][a-z ]+ (?:at|for) .+)", "does {object}",
        "workplace", 0.8, single=True),
    english("occupation", "profile", rf"(?:I've|I have) ~been (?P<object>an? {OCCUPATION}(?: (?:at|in|for) .+?)?)"
        rf" (?:for|since|now) .+", "is {object}",
        "workplace", 0.9, single=True),
    english("occupation", "profile", rf"I ~(?:got|have been|was|got) (?:promoted|made) (?:to )?(?P<object>(?:[a-z-]+"
        rf" ){{0,2}}{OCCUPATION})\b.*",
        "is {object}", "role", 0.9, single=True),
    english("occupation", "profile", rf"{I_AM} ~(?P<object>(?:[a-z-]+ ){{0,2}}(?:self-employed|retired|unemployed"
        rf"|freelance(?! [a-z])|freelancing|between jobs|on (?:parental"
        r"|maternity|paternity|sick) leave))\b.*", "is {object}", "plain", 0.85, single=True),
    english("employer", "profile", r"(?:I've|I have|I) ~(?:signed|accepted (?:a job|an offer)|taken a job|took a job"
        r"|got (?:a|the) (?:new )?job|landed a job"
        r"|got an offer) (?:by|with|at|from) (?P<object>.+)", "works at {object}", "org", 0.9, single=True),
    english("employer", "profile", r"I ~(?:switched|transferred|moved over|moved) to (?P<object>(?:an? |the"
        r" )?(?:[\w-]+ ){0,3}?"
        + _ORG_WORD + r")\b.*",
        "works at {object}", "org", 0.85, single=True),
    english("employer", "profile", rf"(?:I've|I have) ~(?:been|worked|been working) (?:at|with|for)"
        rf" (?P<object>(?:(?:an?|the|my) )?(?:[\w'-]+ ){{0,4}}?(?:{_ORG_WORD}"
        rf"|[A-Z]\w+)) (?:for|since|almost|nearly|over) .+", "works at {object}", "org", 0.85, single=True),
    english("occupation", "profile", rf"(?:I ~work|{I_AM} ~working) as (?P<object>(?:an?|the) .+)",
        "works as {object}", "role", 0.95, single=True),
    english("occupation", "profile", rf"{I_AM} ~(?P<object>an? {OCCUPATION})\b(?! (?:of|who|at heart)\b).*",
        "is {object}", "role", 0.9, single=True),
    english("occupation", "profile", rf"I've ~been (?P<object>an? {OCCUPATION}) (?:for|since) .+",
        "is {object}", "role", 0.9, single=True),
    english("occupation", "profile", r"I ~work (?:at|for|in) .+? as (?P<object>an? .+)", "works as {object}",
        "role", 0.95, single=True),
    english("employer", "profile",
        rf"(?:I ~work|{I_AM} ~working|I ~started working) (?:at|for|by|with) (?P<object>.+)", "works at {object}",
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
    english("school", "profile", rf"{I_AM} ~at (?P<object>(?:the )?(?:University of [A-Z]\w+(?: [A-Z]\w+)*|TU [A-Z]\w+"
        r"|(?:[A-Z][\w'.&-]* ){1,3}(?:University|Uni|College|Polytechnic"
        r"|Institute)(?: of [A-Z]\w+)?))\b(?! (?-i:[A-Z])).*",
        "is at {object}", "plain", 0.85, single=True),
    english("studies", "profile", r"(?:I've|I have) ~been (?:learning|studying|teaching myself|taking up)"
        r" (?P<object>(?!more|about|so|as|how (?!to)|from|new"
        r" things|hard|a lot).+?)(?: (?:for|since|on|with|from) .+)?$", "is learning {object}", "list", 0.85),
    english("studies", "profile", rf"(?:I ~started|I've ~started|{I_AM} ~starting|I ~began|I've ~taken up|I ~took up)"
        rf" (?:learning |studying |to learn )?(?P<object>(?:[a-z-]+ )?(?:Spanish"
        r"|French|German|Italian|Portuguese|Japanese|Chinese|Mandarin|Korean|Arabic|Russian|Polish|Dutch|Swedish"
        r"|Greek|Turkish|Welsh|sign language"
        r"|law|medicine|nursing|engineering|computer science|the (?:cello|piano|violin|guitar|flute|drums)))\b.*",
        "is learning {object}", "plain", 0.85),
    english("school", "profile", rf"{I_AM} ~in (?P<object>(?:year|grade|form) \w+|(?:my )?(?:first|second|third"
        rf"|fourth|final|last|sixth) (?:year|form|grade)(?: (?:of|at) .+)?)$",
        "is in {object}", "plain", 0.85, single=True),
    english("studies", "profile", rf"{I_AM} ~doing (?P<object>(?:an? |my )?(?:phd|master's|masters|ma|msc|mba"
        rf"|bachelor's|degree|apprenticeship|a-levels|gcses)\b.*)",
        "is doing {object}", "event", 0.9),
    english("studies", "profile", rf"(?:I ~study|{I_AM} ~(?:studying|majoring in|learning)|I ~major in)"
        r" (?P<object>(?!more|about|so|as|how (?!to)|for|from|new things|hard).+)", "studies {object}",
        "list", 0.85),
    english("studies", "profile",
        rf"(?:{I_AM} ~taking|I ~take|I ~signed up for|I ~enrolled in|I've ~started|I ~started)"
        r" (?P<object>(?:an? |some |the |my )?(?:(?!taking|doing|going|the|an?\b)[a-z-]+ ){1,4}?(?:class|classes"
        r"|course|courses|lessons?)(?: (?:in|since|on|every) [\w ]{2,25})?)(?:[ ,].*)?$", "takes {object}",
        "event", 0.9),
    english("education", "profile",
        r"I ~(?P<object>(?:graduated (?:from|with|in)|have an? (?:[a-z's]+ )?degree in) .+)", "{object}",
        "event", 0.9),
)
FAMILY = (
    english("family:name", "profile", rf"(?:my|our) (?:two |three |four |five |other )?{KIN_MODIFIER}{_SEVERAL_KIN}"
        rf"(?:'s names|'names|' names)? are (?:called |named |{_NO_KIND}(?=.* and ))(?P<object>{NAMES})$",
        "has a {about} called {object}",
        "names", 0.9),
    english("family:name", "profile", rf"{I_HAVE} ~(?:an?|one) {KIN_MODIFIER}{KIN},? (?:named |called |who is called "
        rf"|whose name is |by the name of )?(?P<object>{NAME})\b.*",
        "has a {about} called {object}", "name", 0.95),
    english("family:name", "profile", rf"(?:my|our) (?P<late>late )?{KIN_MODIFIER}{KIN}{_NOT_PHONED}(?:'s name is|(?:'s"
        rf"| is) (?:named|called)|,? (?:named|called)|,)? (?:is )?(?P<object>{NAME})\b.*",
        "has a {about} called {object}", "name", 0.9),
    english("family:name", "profile", rf"(?P<object>{NAME})(?:,? (?:is|being|who is)|'s) (?:my|our)"
        rf" {KIN_MODIFIER}{KIN}\b.*",
        "has a {about} called {object}", "name", 0.9),
    english("family:name", "profile", rf"(?:my|our) (?P<late>late )?{KIN_MODIFIER}{KIN}{_NOT_PHONED}(?:'s name is|(?:'s"
        rf"| is) (?:named|called)|,? (?:named|called)) (?P<object>(?-i:[a-z])[a-z]+)\b.*",
        "has a {about} called {object}", "given_name", 0.9),
    english("family:work", "profile", rf"(?:my|our) {KIN_MODIFIER}{KIN}(?:,? (?:called |named )?{NAME},?)?(?:'s|,?"
        rf" who is| is|,? who works as| ~works as)?,? ~(?P<object>an? {OCCUPATION}"
        r"(?: (?:at|in|for|with) [\w' -]+)?)\b.*", "has a {about} who is {object}", "workplace", 0.9),
    english("family:work", "profile",
        rf"(?:my|our) {KIN_MODIFIER}{KIN},? (?:called |named )?{NAME},? (?P<object>{OCCUPATION})\b.*",
        "has a {about} who is {a_object}", "role", 0.85),
    english("family:allergy", "profile", rf"(?:my|our) {KIN_MODIFIER}{KIN}(?:,? {NAME},?)?(?:'s| is) ~allergic to"
        rf" (?P<object>.+)", "has a {about} who is allergic to {object}", "items", 0.95),
    english("family:life", "profile", rf"(?:my|our) {KIN_MODIFIER}{KIN}(?:,? (?:called |named )?{NAME},?)?"
        rf" ~(?P<object>(?:lives|works|studies|teaches|moved|moved back|runs|owns|goes|went|started at|got (?:a job"
        rf"|accepted|into)"
        r"|graduated|retired|plays|coaches) ?(?:in|at|as|for|with|to|from|on|the|law|medicine|an?)? .+)",
        "has a {about} who {object}", "event", 0.85),
    english("family:life", "profile", rf"(?:my|our) {KIN_MODIFIER}{KIN}(?:,? (?:called |named )?{NAME},?)?(?:'s| is)"
        rf" ~(?P<object>(?:pregnant|expecting|due|retired|getting married|engaged|divorced|vegan|vegetarian|diabetic"
        r"|coeliac|celiac|deaf|blind|autistic|moving|starting|studying|living|working|in (?:year|grade|hospital"
        r"|[A-Z]\w+)|at (?:university|uni|college|school))\b.*)", "has a {about} who is {object}", "plain", 0.85),
    english("family:life", "profile", rf"(?:my|our) {KIN_MODIFIER}{KIN}(?:,? {NAME},?)? ~(?P<object>(?:was born"
        rf"|passed away|died|got (?:married|engaged|divorced)|had a baby|gave birth|has (?:{_HEALTH}))\b.*)",
        "has a {about} who {object}", "plain", 0.85),
    english("family:birth", "profile", rf"(?P<about>{NAME}) was born (?P<object>(?:on|in|this|last|yesterday|today"
        rf"|at)\b.*)", "has a child called {about} who was born {object}", "birth", 0.8),
    english("family:birth", "profile", r"(?:we|I) ~(?:had|welcomed|gave birth to) (?P<object>(?:our|my|an?) (?:[a-z]+"
        r" )?(?:baby|son|daughter|boy|girl|twins)\b.*)", "had {object}", "birth", 0.85),
    english("pregnancy", "profile", rf"(?:{I_AM}|we're|we are) ~(?P<object>pregnant|expecting(?: an? (?:baby|girl|boy"
        rf"|child))?(?: in \w+)?)\b.*", "is {object}", "plain", 0.9, single=True),
    english("family:name", "profile",
        rf"(?:my|our) (?:older |younger |little |big |eldest |youngest |oldest |baby )?{KIN}{_NOT_PHONED}"
        r"(?:'s name is|(?:'s| is) (?:named|called)|,| named| called|) (?P<object>[A-Z][a-z]+)\b.*",
        "has a {about} called {object}", "name", 0.9),
    english("family:work", "profile",
        rf"(?:my|our) (?:older |younger |little |big |eldest |youngest |baby )?{KIN}(?:'s|,? who is| is|"
        rf" works as) (?P<object>an? {OCCUPATION})\b.*", "has a {about} who is {object}", "role", 0.9),
    english("family:life", "profile",
        rf"(?:my|our) (?:older |younger |little |big |eldest |youngest |baby )?{KIN} ~(?P<object>(?:lives"
        rf"|works" r"|studies) (?:in|at|as|for|with) .+)", "has a {about} who {object}", "event", 0.85),
    english("family:age", "profile",
        rf"(?:my|our) (?:older |younger |little |eldest |youngest |baby )?{KIN} ~(?:is|turned|turns) (?:now"
        rf" )?" r"(?P<object>\d{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b(?! (?:minutes?"
        r"|hours?|days?|weeks?|of|times|more|[a-z]+ (?:away|tall)))(?: years old)?.*",
        "has a {about} aged {object}", "plain", 0.9),
    english("children", "profile",
        rf"{I_HAVE} (?P<object>{COUNT} (?:[a-z-]+ ){{0,2}}?(?:kids?|child|children|sons?|daughters?"
        r"|boys|girls|twins)" rf"(?:,? (?:called |named )?{NAME}(?:(?:, and|,| and) {NAME})*)?)(?!\w).*",
        "has {object}", "plain", 0.9, single=True),
    english("siblings", "profile",
        rf"{I_HAVE} (?P<object>{COUNT} (?:[a-z-]+ ){{0,2}}?(?:sisters?|brothers?|siblings)"
        rf"(?:,? (?:called |named )?{NAMES}(?=$|[.,;!]))?)(?!\w).*",
        "has {object}", "plain", 0.9, single=True),
    english("pet:name", "profile", rf"(?:my|our) (?:new |old |little )?(?P<about>{ANIMAL})(?:'s name is| is (?:named"
        rf"|called)|,? (?:named|called)) (?P<object>(?-i:[a-z])[a-z]+)\b.*",
        "has a {about} called {object}", "given_name", 0.9),
    english("pet", "profile", rf"(?:{I_HAVE}|I ~bought|we ~bought|I ~rescued|we ~rescued) (?P<object>{COUNT}"
        rf" (?:[a-z]+ ){{0,3}}?{ANIMAL}),? (?:who's |who is )?(?:named|called) (?P<about>(?-i:[a-z])[a-z]+)\b.*",
        "has {object} called {about}", "plain", 0.9),
    english("pet:name", "profile",
        rf"(?:my|our) (?:new |old |little )?(?P<about>{ANIMAL})(?:'s name is|(?:'s| is) (?:named|called)|,| named"
        r"| called|) (?P<object>[A-Z][a-z]+)\b.*", "has a {about} called {object}", "name", 0.9),
    english("pet", "profile",
        rf"{I_HAVE} (?:[a-z ]*(?:kids?|children|sons?|daughters?) and )?(?P<object>{COUNT} (?:[a-z]+"
        rf" ){{0,3}}?{ANIMAL}(?:,? (?:named|called)"
        rf" [A-Z][a-z]+(?: and [A-Z][a-z]+)?| and {COUNT} {ANIMAL})?)\b(?! (?:food|toy|bed|hair)).*",
        "has {object}", "plain", 0.9),
)
_MAY_NOT = r"(?:can't|cannot|can not|mustn't|am not allowed to)"
_FOOD = (
    r"(?P<object>(?!any|much|enough|time|that|the\b|a |to |it|more|out|well|without|this|my|so\b|anything|something"
    r"|because|very|for).+)"
)
HEALTH = (
    english(
        "allergy",
        "profile",
        rf"(?:.*, )?(?:(?:even |the )?(?:smell|taste) of )?(?P<object>[a-z]+(?: [a-z]+){{0,2}}?),? ~{_REACTS}\b.*",
        "is allergic to {object}",
        "items",
        0.85,
    ),
    english(
        "allergy",
        "profile",
        r"(?:my|I've got an?|I ~have an?) (?P<object>[a-z]+(?: [a-z]+)?) allergy\b.*",
        "is allergic to {object}",
        "list",
        0.9,
    ),
    english(
        "health",
        "profile",
        rf"(?:{I_HAVE}|I ~suffer from|I ~live with|I was ~diagnosed with|I've ~been diagnosed with|I got diagnosed"
        rf" with|it's|it is|it was) ~(?P<object>{_HEALTH})\b.*",
        "has {object}",
        "plain",
        0.9,
    ),
    english(
        "health",
        "profile",
        rf"{I_AM} ~(?P<object>(?:colou?r-?blind|deaf(?: in (?:one|my \w+) ear)?|blind(?: in one eye)?|hard of hearing"
        rf"|left-handed|dyslexic|autistic|diabetic"
        r"|asthmatic|epileptic|claustrophobic|short-sighted|lactose[- ]intolerant|coeliac|celiac|afraid of [a-z]+"
        r"|scared of [a-z]+|terrified of [a-z]+))\b.*",
        "is {object}",
        "plain",
        0.9,
    ),
    english(
        "medication",
        "profile",
        rf"(?:I ~take|{I_AM} ~(?:taking|on)) (?P<object>{DRUG}(?:(?:, (?:and )?| and | & )(?:also |an? |the |some )*"
        rf"{DRUG})+)\b.*",
        "takes {object}",
        "items",
        0.9,
    ),
    english(
        "medication",
        "profile",
        rf"(?:I ~take|{I_AM} ~(?:taking|on)) (?P<object>(?:\d+ ?mg of )?(?:metformin|insulin|ibuprofen|lisinopril"
        rf"|statins?|antidepressants|sertraline|warfarin"
        r"|levothyroxine|ventolin|blood (?:thinners|pressure (?:tablets|medication|pills))|[a-z]+ (?:tablets|pills"
        r"|medication)))\b.*",
        "takes {object}",
        "plain",
        0.9,
    ),
    *(
        english(
            "diet",
            "profile",
            rf"I (?:{_MAY_NOT} ~{cannot}|(?:don't|do not|never) ~{does_not}) {_FOOD}",
            text,
            "items",
            0.85,
        )
        for cannot, does_not, text in (
            ("eat", "eat", "does not eat {object}"),
            ("drink", "drink", "does not drink {object}"),
            (
                r"(?:do(?= (?:dairy|gluten|nuts?|peanuts|cashews|almonds|shellfish|fish|eggs|meat|spicy|sugar|caffeine"
                r"|alcohol|milk|cheese|wheat|soy|seafood|pork|beef|mushrooms|lactose|onions|garlic))|have|stomach|touch"
                r"|tolerate|digest)",
                "touch",
                "does not eat or drink {object}",
            ),
        )
    ),
    english(
        "diet",
        "profile",
        r"I ~(?:stopped|quit|gave up|have given up|cut out|am off|don't do) (?:eating |drinking )?(?P<object>smoking"
        r"|alcohol|meat|sugar|dairy|gluten|coffee|caffeine|bread|carbs"
        r"|fish|wheat|red meat|pork|beef)\b.*",
        "has given up {object}",
        "plain",
        0.9,
    ),
    english(
        "diet",
        "profile",
        r"I ~(?:only|just) ~(?:drink|eat) (?P<object>.+)|I ~(?:drink|eat) (?:only|just) (?P<about>.+)",
        "only eats or drinks {object}{about}",
        "items",
        0.9,
    ),
    english("allergy", "profile", rf"(?:{I_AM} ~|I have always been |I've ~been )allergic to (?P<object>.+)",
        "is allergic to {object}", "items", 0.95),
    english("allergy", "profile",
        r"I ~have an? (?:bad |severe |mild )?(?P<object>[a-z]+(?: [a-z]+)?) allergy\b.*",
        "is allergic to {object}", "items", 0.95),
    english("diet", "profile",
        rf"(?:{I_AM}|I ~went|I ~turned) ~(?:an? )?(?P<object>vegan|vegetarian|pescatarian|lactose[-"
        rf" ]intolerant" r"|gluten[- ]free|diabetic|coeliac|celiac)\b.*", "is {object}", "plain", 0.95,
        single=True),
)
TASTE = (
    english("preference", "preference", r"my (?:main |biggest |other |favou?rite |only |new )*(?:hobb(?:y|ies)"
        rf"|interests?|passions?|pastimes?)(?:'s| is| are| includes?)(?: mainly| mostly)? {_DESCRIBED}(?P<object>.+)",
        "likes {object}", "items", 0.85),
    english("favorite", "preference", r"my (?:(?:top|first|number one|no\.? ?1|main) (?:two"
        r" |three |four |five )?(?:picks?|choices?|favou?rites?)|(?:all[- ]time|absolute|number one) (?:fave"
        r"|favou?rite)s?"
        r"|go-tos?)(?: for (?:an? |the |my )?(?P<about>[a-z]+(?: [a-z]+)?))?(?:'s| is| would be| are| has always been)"
        rf" (?:probably |definitely |still |always |easily |hands down )*{_DESCRIBED}(?P<object>.+)",
        "has as top choice {about}: {object}", "titles", 0.9),
    english("favorite", "preference", r"my go-to (?P<about>[a-z]+(?: [a-z]+)?)(?:'s| is| are) (?P<object>.+)",
        "has as favourite {about} {object}", "title", 0.9),
    english("preference", "preference", r"(?P<object>[\w' -]+?)(?:'s| is| are) (?:definitely |also )?my (?:top|first"
        r"|number one) (?:pick|choice)\b.*", "likes {object}", "list", 0.85),
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
    english("plays", "profile", rf"(?:{I_AM}|I ~play|I ~switched (?:from \w+ )?to|I've switched to|I ~moved to) (?:on"
        rf" )?(?:the )?(?P<object>{INSTRUMENTS}).*", "plays {object}", "items", 0.9),
    english("member", "custom", rf"(?:{I_AM} ~(?:singing|playing|in)|I ~sing|I ~play|I've ~been (?:singing|playing)"
        rf"|(?:I|we) ~(?:started|formed|joined|set up)|I belong to) (?:(?:soprano|alto|tenor|bass|baritone"
        rf"|drums|guitar"
        r"|lead) )?(?:in |for |with )?(?P<object>(?:an?|the|our|my) (?:[\w'-]+ ){0,3}?(?:choir|band|orchestra|team"
        r"|league|club"
        r"|book club|troupe|society|quartet|ensemble|reading group|running group)\b(?: (?:called|named) .+)?).*",
        "is in {object}", "plain", 0.85),
    english("member", "custom", rf"(?:{I_AM} ~singing|I ~sing|I've ~been singing) (?P<object>soprano|alto|tenor|bass"
        rf"|baritone)\b.*", "sings {object}", "plain", 0.85),
    english("owns", "custom", r"(?:I've|I have|we've|we have) ~had (?P<object>(?:an?|my|our|this|the) (?:[a-z-]+"
        r" ){0,2}?(?:allotment|garden|car|boat|van|caravan|piano|house|flat|shop|motorbike|cabin|farm"
        r"|business)(?: .*)?)", "has had {object}", "plain", 0.8),
    english("habit", "custom", r"I ~(?:only|just) ~(?P<object>(?:use|wear|read|buy|listen to|watch|cook with|fly"
        r"|travel by) .+)", "only {does}", "action", 0.8),
    english("plays", "profile",
        rf"(?:I|I've) ~(?:play|can play|played|been playing) (?:the |some |a (?:bit of|little) )?"
        rf"(?P<object>{INSTRUMENTS}|{listed(_SPORTS)})(?! (?:last|yesterday|with you)).*",
        "plays {object}", "items", 0.9),
    english("speaks", "profile", rf"I ~(?:speak|can speak) (?P<object>{_LANGUAGES})\b.*", "speaks {about} {object}",
        "languages", 0.95),
    english("owns", "custom",
        r"(?:I|we|I've|we've) ~(?:bought|got|own) (?:myself |ourselves )?(?P<object>(?:an?|my|our)"
        r"(?: (?!(?:with|about|for|in|on|to|of|from|at|my|our|his|her|their)\b)[a-z-]+){0,3}?"
        r" (?:car|bike|bicycle|motorbike|house|apartment|flat|condo|piano|guitar|camera"
        r"|laptop|computer" r"|phone|tablet|console|truck|van|boat|watch|tent|printer|drone|scooter))\b(?! for"
        r" (?!me\b|myself|us\b|work|the |\d|£|€|\$)).*",
        "has {object}", "plain", 0.85),
    english("owns", "custom", r"I ~drive (?P<object>an? .+)", "drives {object}", "event", 0.9),
)
_MY = (
    r"(?:(?!.*\b(?:late|ex|future|someday|died|passed|lost|dream|miss|used to)\b).*(?<!of )\bmy"
    r" (?:older |younger |little |big |lovely )?"
)
#: A relative's name, wherever a sentence mentions it.
NAMED_KIN = english("family:name", "profile", rf"\b(?:my|our) {KIN_MODIFIER}{KIN}{_NOT_PHONED},? (?:called |named"
    rf" )?(?P<object>(?!(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|June|July|August"
    rf"|I\b){NAME})\b(?!'s)",
    "has a {about} called {object}", "name", 0.9)
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
        r"(?!.*\b(?:sold|selling|stolen|scrapped|totall?ed|wrote off|traded in|gave away|returned)\b)" + _MY
        + r"(?:new )?(?P<object>car|bike|bicycle|motorbike|guitar|piano|violin|camera|van|truck|boat"
        r"|Toyota|Honda|Prius|Tesla|Volvo|Vespa|garden))\b.*", "has {a_object}", "plain", 0.8),
)
# fmt: on
