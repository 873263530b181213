"""English families of statements: what a clause is about, by its words. The first family of a clause wins."""

from __future__ import annotations

from hippocampus.providers.local import patterns_en
from hippocampus.providers.local.families import family
from hippocampus.providers.local.patterns_en import DATE, DAYS, DRUG, MONTH, NAME, OCCUPATION, TIME

_KIN = patterns_en.KIN.replace("?P<about>", "?:")
_KIN_MORE = (
    rf"(?:{_KIN[3:-1]}|kids?|children|boys|girls|twins|baby|babies|bump|grandson|grandkids|parents|folks|in-laws|nan"
    r"|sis|bro|step ?(?:son|daughter|mum|mom|dad|brother|sister)|ex(?:-(?:wife|husband))?|family|mate|pal|bestie"
    r"|best mate|friends?|neighbou?rs?|supervisor|advisor|landlord|landlady|coach|colleagues?|lad|little one)"
)
_ANIMAL = (
    rf"(?:{patterns_en.ANIMAL[3:-1]}|heelers?|whippets?|greyhounds?|lurchers?|huskys?|huskies|shepherds?|pugs?|boxers?"
    r"|bulldogs?|frenchies?|staffies?|staffys?|labs?|doodles?|cockapoos?|labradoodles?|cavapoos?|chihuahuas?"
    r"|shih tzus?"
    r"|border collies?|dalmatians?|mutts?|mongrels?|hounds?|setters?|pointers?|moggies|moggy|siamese|persians?"
    r"|ragdolls?|maine coons?|gerbils?|rats?|mice|mouse|hens?|ducks?|geese|goats?|sheep|pigs?|donkeys?|alpacas?"
    r"|cockatiels?|budgerigars?|macaws?|finch(?:es)?|pigeons?|fish|koi|bees|beehives?|tarantulas?|iguanas?|pets?)"
)
_NOT = r"\b(?:not|never|no longer|isn't|wasn't|aren't|don't|doesn't|didn't|haven't|hasn't|without)\b"

_CONDITION = (
    r"(?:(?!(?:sym|em|a|tele|anti)pathy|(?:dia|pro)gnosis|hypnosis|osmosis|symbiosis|metamorphosis|nostalgia|academia"
    r"|bohemia|(?:xeno|homo|trans|islamo)phobia)[a-z]{3,}(?:itis|osis|emia|aemia|algia|phobia|plegia|sclerosis|lepsy|pnea|pnoea|uria|pathy|noma|cardia)"
    r"|asthma"
    r"|dementia|alzheimer'?s|cancer|leukaemia|parkinson'?s|diabet(?:es|ic)|prediabetic|migraines?|epilep(?:sy|tic)"
    r"|anxiety|depress(?:ion|ed)|insomnia|adhd|(?-i:ADD)|autis(?:m|tic)|dyslexi[ac]|dyspraxi[ac]|ocd|ptsd|bipolar|eczema"
    r"|hay ?fever|c(?:o)?eliac(?: disease)?|ibs|ibd|crohn'?s|colitis|(?:high |low )?(?:blood pressure|cholesterol"
    r"|blood sugar)"
    r"|gout|sciatica|tinnitus|vertigo|(?:under|over)active thyroid|thyroid|reflux|ulcers?|gallstones?|kidney stones?"
    r"|slipped disc|herniated dis[ck]|hernia|cataracts?|glaucoma|angina|palpitations|arrhythmia|heart (?:condition"
    r"|attack|failure|murmur)|stroke|pacemaker|stent|epipen|lupus|shingles|long covid|pcos|menopause|perimenopause"
    r"|pre-?eclampsia|cmpa|lactose intoleran\w+|claustrophobi[ac]|colou?r[- ]?blind|deaf|hearing aids?|stress "
    r"(?:fracture|reaction|injury)|(?:torn|ruptured|bulging|slipped|pulled) [a-z]+"
    r"|cysts?|(?:macular )?degeneration|detached retina|tumou?rs?|lump|polyps?|fibroids|blood clots?|pneumonia"
    r"|hepatitis|an(?:a)?emia|low iron|stammer"
    r"|stutter|burnout|panic attacks?|sleep apn(?:o)?ea|restless legs|chronic (?:pain|fatigue|[a-z]+)|rsi"
    r"|tennis elbow|carpal tunnel|frozen shoulder|plantar fasciitis|shin splints|tendinitis|concussion)"
)
_BODY = (
    r"(?:back|knees?|hips?|shoulders?|ankles?|wrists?|elbows?|neck|foot|feet|toes?|legs?|arms?|hands?|fingers?|thumbs?"
    r"|eyes?|eyesight|ears?|hearing|heart|lungs?|stomach|liver|kidneys?|skin|teeth|tooth|jaw|spine|hamstring|achilles"
    r"|calf|ribs?|collarbone|rotator cuff|acl|meniscus|sight|bladder|bowels?|gut|sinuses|joints?|memory)"
)
_AILING = (
    r"(?:bad|shot|gone|toast|knackered|done in|dodgy|kill(?:s|ing)|play(?:s|ing) up|act(?:s|ing) up|hurts?|hurting"
    r"|ach(?:es|ing|y)|sore|clicks?|cracks?|crack like|weak|buggered|ruined|wrecked|wonky|swollen|replaced?|numb|stiff"
    r"|in a (?:boot|cast|sling|brace|splint)|slipped|fractured?|broken|injured|torn|sprained|twisted|giv(?:es|ing)"
    r" (?:me|out)|went|went again|keeps? me (?:up|awake)|not what (?:it|they)|worn|arthritic|operat\w+|surgery|locks?"
    r"|throbs?|fails?|failing|going)"
)
_FOOD = (
    r"(?:meat|red meat|beef|pork|lamb|chicken|turkey|bacon|fish|salmon|tuna|seafood|shellfish|prawns?|shrimps?"
    r"|oysters?"
    r"|mussels|crab|lobster|eggs?|milk|cow'?s milk|dairy|cheese|yogh?urt|butter|cream|wheat|gluten|bread|pasta|rice"
    r"|nuts?|peanuts?|almonds?|cashews?|hazelnuts?|walnuts?|sesame|tahini|soy|soya|tofu|beans?|lentils?|chickpeas?"
    r"|sugar|sweets|salt|carbs|chocolate|caffeine|coffee|tea|alcohol|booze|beer|wine|spirits|whisky|fizzy drinks|soda"
    r"|spic[ey]\w*|chilli(?:es)?|garlic|onions?|mushrooms?|tomato(?:es)?|potatoes|peppers?|aubergines?|celery"
    r"|coriander|cilantro|olives?|avocados?|bananas?|strawberr(?:y|ies)|pineapple|kiwis?|citrus|oranges?|grapefruit"
    r"|apples?|mangos?|mangoes|peach(?:es)?|honey|mustard|msg|liver|offal|sultanas|raisins|junk food|fast food"
    r"|takeaways|lactose|pudding|dessert|puddings|gelatine?|snacks)"
)
_FREQUENCY = (
    rf"(?:(?:every|each) (?:single |other |second )?(?:morning|evening|afternoon|night|day|week|weekend|month|year"
    rf"|summer"
    rf"|winter|spring|autumn|fall|lunchtime|{DAYS}|few days|Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b|(?:once|twice|thrice"
    r"|(?:one|two|three|four|five|six|\d) times|\d ?x) (?:an? |per |every )(?:day|week|month|year|fortnight)|most"
    r" (?:days|mornings|evenings|nights|weekends|weeks)|\b(?:daily|nightly|weekly|fortnightly)\b"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days\b|\b(?:on )?week(?:ends|days)\b|"
    r"\b(?:one|two|three|four|five|six|seven|eight|ten|\d+) (?:[a-z]+ ){0,2}an? (?:day|night|week)\b"
    r"|before (?:breakfast|bed|work|school)|after (?:work|dinner|school|lunch)|at (?:\d{1,2}(?:[:.]\d\d)?) ?(?:am|pm)?"
    r" (?:in the (?:morning|evening)|every|on)|\d ?am\b.*\bday\b|in the (?:mornings|evenings|afternoons))"
)
_PAST_VERB = (
    r"^(?:I|we) (?:\w+ly |just |also |finally |never )?(?:went|took|got|made|met|saw|bought|began|ran|won|lost|gave"
    r"|found|flew|drove|had|did|was|were|came|told|said|[a-z]+(?<!ne)(?<!fe)(?<!spe)ed)\b"
)
_THING = (
    r"(?:car|bikes?|bicycle|motorbike|motorcycle|scooter|e-?bike|van|campervan|caravan|truck|pickup|boat|canoe|kayak"
    r"|surfboard|paddleboard|snowboard|skis|skateboard|wetsuit|guitar|piano|keyboard|violin|cello|drum kit|drums"
    r"|ukulele|saxophone|trumpet|synth|camera|lens|drone|laptop|macbook|computer|pc|tablet|ipad|phone|iphone|console"
    r"|playstation|xbox|switch|kindle|e-reader|telescope|microscope|sewing machine|rowing machine|treadmill|lathe|loom"
    r"|kiln|3d printer|printer|record player|turntable|vinyl|house|flat|apartment|bungalow|cottage|cabin|land"
    r"|allotment|greenhouse|shed|workshop|garden|tractor|tent|knife|knives|watch|ring|bike|subaru|toyota|honda|civic"
    r"|ford|vw|volkswagen|bmw|audi|mercedes|tesla|volvo|mazda|nissan|kia|hyundai|skoda|fiat|renault|peugeot|jeep"
    r"|vespa|prius|mini|corolla|golf)"
)
_ACTIVITY = (
    r"(?:swim|surf|run|jog|climb|boulder|paint|draw|sketch|knit|crochet|sew|quilt|sing|dance|box|cycle|hike|fish"
    r"|garden"
    r"|bake|ski|skate|snowboard|dive|sail|row|fence|meditate|juggle|whittle|carve|weave|embroider|kayak|skateboard"
    r"|lift|powerlift|blog|podcast|stream|dj|act|volunteer|coach|tutor|referee|birdwatch|brew|forage|shoot|ride"
    r"|write (?:poetry|poems|songs|fiction|short stories)|play (?:the )?[a-z]+)"
)
_HOBBY = (
    r"(?:swimming|surfing|running|jogging|climbing|bouldering|painting|drawing|knitting|crochet(?:ing)?|sewing"
    r"|quilting"
    r"|singing|dancing|salsa|ballet|boxing|kickboxing|judo|karate|jiu[- ]jitsu|taekwondo|cycling|hiking|fishing"
    r"|gardening|baking|skiing|skating|snowboarding|diving|scuba|sailing|rowing|fencing|archery|meditation|yoga"
    r"|pilates"
    r"|tai chi|crossfit|spin|zumba|pottery|ceramics|woodwork(?:ing)?|photography|astronomy|birdwatching|birding|chess"
    r"|bridge|golf|tennis|badminton|squash|padel|football|soccer|rugby|cricket|netball|basketball|volleyball|hockey"
    r"|darts|snooker|bowls|bell ?ringing|calligraphy|origami|coding|gaming|beekeeping|home ?brewing|fishing|camping"
    r"|horse ?riding|gymnastics|parkour|karaoke|stand-?up|improv|theatre|drama|jigsaws?|crosswords?|sudoku|embroidery"
    r"|weaving|genealogy|kayaking|paddleboarding|triathlons?|marathons?|parkrun|weightlifting|powerlifting|the gym)"
)
_LANGUAGE = (
    r"(?-i:Spanish|French|German|Italian|Portuguese|Japanese|Chinese|Mandarin|Cantonese|Korean|Arabic|Russian|Polish"
    r"|Dutch|Swedish|Norwegian|Danish|Finnish|Greek|Turkish|Welsh|Irish|Gaelic|Hindi|Urdu|Hebrew|Thai|Vietnamese"
    r"|English|Latin|Swahili|Catalan|BSL|ASL)"
)
_MILESTONE = (
    r"(?:passed|failed|qualified|graduated|engaged|married|split up|broke up|separated|divorced|moved in|sold|won|ran"
    r"|completed|joined|adopted|published|retired|got (?:in|into|accepted|hired|promoted|fired|the job|the keys|the"
    r" house|(?:the |my |all )?[a-z]+ off|tickets)|made (?:states|nationals|the team|the squad|partner|redundant)"
    r"|became"
    r"|been promoted|applied (?:to|for)|st(?:ood|epped) down|enrolled|signed (?:up|the|a)|launched|started|quit"
    r"|gave up|given up|stopped"
    r"|took up|taken up|handed (?:in|my)|finished|booked|deferred|won|lost (?:my|our) [a-z]+|quali(?:fy|fied)"
    r"|retraining|training (?:as|to be|for)|certificate|licen[cs]e|diploma|citizenship|visa|diagnosed|elected|accepted"
    r"|awarded|recovered)"
)

_LASTING = (
    r"(?:always|never|every time|each time|from now on|from here on|in (?:the )?future|going forward|whenever|at all"
    r" times|by default|(?:all|every) (?:the |my |of )?[a-z]+ (?=in |as |with |by )|ever again|ever|anything"
    r"|anywhere|any (?:of|more)|permanently|in general)"
)
_STYLE = (
    r"(?:answers?|repl(?:y|ies)|responses?|messages?|essays?|paragraphs?|sentences?|walls? of text|bullet(?:s|"
    r" points)?"
    r"|lists?|emojis?|exclamation marks?|spelling|grammar|mistakes|metric|imperial|units?|fahrenheit|celsius|miles"
    r"|kilomet(?:re|er)s|pounds|kilos|ounces|grams|litres|day first|24[- ]hour|12[- ]hour|dates|times|time ?zone"
    r"|euros?|dollars|currency|sugar ?coat\w*|straight|blunt|honest|gentle|formal|informal|casual|polite|plain"
    r"|simple|short|brief|long|concise|detailed?|jargon|slang|tone|stats|statistics|numbers|level|british|american|us"
    r" english|uk english|english|french|german|spanish|language|capitals|lower ?case|names?|examples?|sources?|links?"
    r"|citations?|disclaimers?|warnings?|lectur\w+|apologi\w+|compliments?|flattery|small talk|questions?|step by"
    r" step|hints?|spoilers?|code|comments?|tables?|visual|dark mode|screenshots)"
)
_ASKS = (
    r"(?:give|tell|use|keep|call|correct|answer|write|speak|talk|avoid|remember|mention|recommend|suggest|remind"
    r"|explain"
    r"|show|send|put|make|stick|round|convert|translate|spell|format|include|add|stop|quit|start|end|skip|drop|leave"
    r"|treat|address|refer|say|assume|check|ask|respond|reply|be|go|have|let|do|sign|cite|quote|summari[sz]e|list|warn"
    r"|only use|stay|limit)"
)

# Tables, read by row: the first family that a clause belongs to takes it.
# fmt: off
RULES = (
    family("rule", "rule", r"^(?:you'd better |you had better |best |please |only |just |and |so |but )*"
        r"(?P<object>(?:don't |do not |never )?(?:ring|call|phone|text"
        r"|message|e-?mail|visit) me (?:(?:only|any ?time) )?(?:after|before|between|at|on|in the) .*)$", whom="anyone",
        refuse=r"\b(?:tomorrow|tonight|today|later|back|when you|if|this|next)\b", text="{object}", confidence=0.85),
    family("rule", "rule",
        rf"^(?:(?:please|pls|just|also|and|so|oh|listen|look|hey|ok|try to|make sure (?:to|you)|can you|could you"
        rf"|would you"
        rf"|will you|I(?:'d| would) like you to|I (?:want|need) you to|I(?:'d| would) prefer (?:it if )?you(?:"
        rf" to)?|you"
        rf" (?:can|could|should|must|may))[ ,]+)*(?P<object>(?:(?:always|never|only|don't|do not|no longer)(?: ever)?"
        rf" )*"
        rf"{_ASKS}\b.*?\b{_LASTING}\b.*)$", whom="anyone",
        refuse=r"^(?:I|we|my|he|she|they|it)\b|\b(?:mind|worry|see you|let me know|hope|been|if I ever|have you"
            r" ever)\b"
        r"|\b(?:anything|ever) (?:else|happen)|^(?:do|have|let)\b|^(?:have you|do you|would you ever)",
        text="{object}", confidence=0.85),
    family("rule", "rule",
        rf"^(?:(?:please|pls|just|also|and|so|oh|listen|look|hey|ok|from now on|always)[ ,]+)*(?P<object>(?:"
        rf"(?:don't|do"
        rf" not|never|no longer|only|always|stop|avoid|keep|stick|use|write|give me|tell me|treat me|go easy"
        rf"|talk|speak"
        rf"|spell|be|leave out|skip|drop|enough)\b(?: ever)?).*\b{_STYLE}\b.*)$", whom="anyone",
        refuse=r"^(?:(?:don't|do not|never|stop) [a-z]+ (?:that|this|it|me|them)$|be (?:honest|right)|tell me "
            r"(?:a|about|something|more|the|how|what|your)|give me (?:a|an|the|some"
        r"|one|two|three|five|ten|\d)\b|write (?:a|an|the|me)\b|don't (?:have|know|want|need|like|get|tell|think|speak"
        r"|write|be|feel|see|mind|use my))\b|^(?:use|keep) (?:the|my|a)\b|\bI (?:speak|use|write)\b",
        text="{object}", confidence=0.8),
    family("rule", "rule",
        rf"^(?P<object>(?:(?:and|also|so|but|please),? )?no (?!idea|way|problem|worries|thanks|thank|need|doubt|chance"
        rf"|rush|one|more|matter|point|sign|news|luck)(?:[a-z]+ ){{0,3}}?{_STYLE}\b.*)$", whom="anyone",
        refuse=r"\b(?:I|we|have|has|is|was|yet)\b", text="{object}", confidence=0.8),
    family("rule", "rule",
        rf"^(?P<object>[a-z, ]*\b{_STYLE}\b[a-z ,]* (?:only|please(?:,? always)?|from now on|instead|and nothing"
        rf" else))$",
        whom="anyone", refuse=r"\b(?:I|my|we|need|want|can|is|are|was|only have|explain|thanks)\b",
        text="{object}", confidence=0.8),
    family("rule", "rule", r"^(?:hey |and |but |also |please |oh |so )*(?P<object>(?:don't|do not|never|stop|quit)"
        r" (?:ever"
        r" )?(?:call|calling|address|addressing|refer|referring|treat|treating|nag|nagging|lectur|patroni[sz]|spoil"
        r"|swear|swearing|sign|flatter|preach|rush)\w*\b.*)$", whom="anyone",
        refuse=r"\b(?:back|later|him|her|them|tomorrow|tonight)\b", text="{object}", confidence=0.85),
    family("rule", "rule", r"^(?P<object>I (?:prefer|like|want|need) (?:it|things|answers|my answers|you|them"
        r"|everything)"
        r" (?:straight|short|blunt|plain|brief|simple|in [a-z]+|to be|detailed|visual|without|with).*)$", whom="anyone",
        text="{clause}", confidence=0.8),
    family("rule", "rule", r"^I (?:take|write|read|use|like) (?:my )?(?P<object>(?:dates|units|measurements|times"
        r"|prices"
        r"|recipes) .*(?:way|first|in)\b.*)$", whom="anyone", text="{clause}", confidence=0.8),
)
HEALTH = (
    family("allergy", "profile", r"\b(?P<object>(?!it\b|that\b|this\b)[a-z]+(?: [a-z]+)?) (?:makes?|gives?|brings?"
        r"|sends?|swells?|brought|gave|made) (?:me|my|her|him|his|our)\b.*\b(?:swell\w*|swollen|rash|hives|close up"
        r"|balloon|bleed|itch\w*"
        r"|spots|vomit|throw up|wheez\w*|anaphyla\w+|a&e|hospital|tingl\w+|blotch\w*|puff\w*|runs)\b", whom="own"),
    family("allergy", "profile", r"^(?P<object>[A-Z]\w+) (?:goes|went) into (?:anaphylactic )?shock\b", whom="named"),
    family("allergy", "profile", r"\b(?:allergic|allergy|allergies|intoleran(?:t|ce)|anaphyla\w+)\b(?: to"
        r" (?P<object>[a-z]+(?: [a-z]+)?))?", whom="anyone", refuse=rf"{_NOT}.*allerg|^are|^is|\?", confidence=0.85),
    family("allergy", "profile", rf"\b(?:can't|cannot|mustn't|can not) (?:\w+ )?(?:do|have|touch|go near|eat)"
        rf" (?P<object>{_FOOD})\b.*\b(?:tongue|throat|lips|mouth|skin|rash|hives|swell|bleed|itch)\b"),
    family("diet", "profile", rf"^(?:I|we)(?:'m|'re| am) (?:\w+ )?(?:eating|drinking|having) (?P<object>{_FOOD})\b.*\b"
        r"(?:now|again|these days)$", single=True),
    family("diet", "profile", rf"^(?:I|we) (?:also |can |started |do |'ve started |have started )*(?:eat(?:ing)?"
        rf"|drink(?:ing)?) (?P<object>{_FOOD})\b.*\b(?:now|again|these days)$", single=True),
    family("diet", "profile", r"\b(?P<object>vegan|vegetarian|veggie|veggo|pescatarian|gluten[- ]free|dairy[- ]free"
        r"|halal|kosher|teetotal|keto|low[- ]carb|plant[- ]based|celiac|coeliac)\b", whom="own", single=True,
        refuse=rf"{_NOT}|\b(?:recipe|restaurant|option|place|dish|meal|cake|stopped|quit|used to|suggest|something)\b"
        r"|\b(?:my|our) (?!whole|entire|own)(?!self)\w+(?:'s| is| are| was)\b"),
    family("diet", "profile", rf"\b(?:don't|do not|can't|cannot|won't|never|no longer|not allowed|mustn't|stopp?"
        rf"(?:ed)?"
        rf"|quit|given up|gave up|giv(?:e|ing) up|cut(?:ting)? (?:out|down(?: on)?|back(?: on)?)|avoid(?:ing)?|off"
        rf"|swore off"
        rf"|without|no more|dropp?(?:ed|ing)?)\b (?:the |to |all |any |my |much |[a-z]+ly )*(?:eat(?:ing)?"
        rf" |drink(?:ing)? |touch(?:ing)? |have |having |do |stomach )*(?:the |any |raw |fresh |cooked"
        rf" )*(?P<object>{_FOOD})(?! (?:shop|plant|mug|machine|cup|farm|market|pan|jam))\b(?!\?)", whom="own",
        refuse=r"\b(?:you|run out|ran out|left|forgot|buy|need)\b"),
    family("diet", "profile", r"\b(?:can't|cannot|can not|mustn't|not allowed to|not supposed to) (?:eat|drink"
        r"|touch) (?:any )?(?P<object>(?!it\b|that\b"
        r"|this\b|you\b|much\b|anything|everything|what|my|the (?:wheel|ground|sides)|another|more\b)[a-z]+(?:"
        r" [a-z]+)?)", whom="own"),
    family("diet", "profile", rf"^(?:the |raw |all )*(?P<object>{_FOOD})(?:'s| is| are|'re) (?:\w+ )?(?:out|off(?:"
        rf" the)?"
        rf" ?(?:menu|limits|table|list|cards)?|a no(?:[- ]?go)?|banned|forbidden)\b", whom="anyone"),
    family("diet", "profile", rf"^no (?:more )?(?P<object>{_FOOD})\b.*\b(?:me|us|please|doctor|doc|house|diet)\b",
        whom="anyone"),
    family("diet", "profile", rf"^(?:I|we)(?:'m|'re)? (?:only |just )?eat(?:ing)? (?:only "
        rf"|just )?(?P<object>{_FOOD})\b(?: and {_FOOD})?"
        r"(?:,| but not [a-z]+| (?:now|again|these days|once more))+", refuse=r"\b(?:dinner|lunch|breakfast)\b"),
    family("diet", "profile", r"\b(?:stopped|quit|gave up|given up|giving up|off) (?:the )?(?P<object>drink(?:ing)?"
        r"|smok(?:ing|es)|booze|cigarettes|cigs|vap(?:ing|es)|fags|alcohol)\b|\b(?:don't|do not|no longer)"
        r" (?P<about>drink|smoke|vape)\b(?! (?:coffee|tea|enough|much))", confidence=0.85),
    family("medication", "profile", rf"\b(?:tak(?:e|ing|es)|took|start(?:ed|ing)?|on|put|swap(?:ped)?|switch(?:ed)?"
        rf"|chang"
        rf"(?:ed)?|prescribed|given|having|have|need|use|using|carry|got|in|finished)\b.*?\b(?P<object>{DRUG})\b",
        whom="own",
        refuse=rf"\ballerg|{_NOT}|'ll\b|\b(?:will|could|should|let me|buy|pick up) (?:have|take|need|get|use|grab)?\b"),
    family("health", "profile", r"\b(?:diagnosed with|suffer(?:s|ing)? (?:from|with)|tested positive for|struggl\w+"
        r" with|living with(?! (?:my|our|the|an?|his|her|him|them|two|three|four|[A-Z]))|treated for|recover\w+"
        r" from|prone to|in remission) (?P<object>(?!you|him|her|them|this"
        r"|that)[a-z][a-z' -]+)", whom="own"),
    family("health", "profile", rf"\b(?:hurt|broke|broken|injured|tore|torn|sprained|fractured|dislocated|pulled"
        rf"|twisted"
        rf"|did in|put out|bust(?:ed)?|damaged|bruised) (?:my|the|an?|both|one of my) (?:\w+ )?(?P<object>{_BODY})\b",
        whom="own", refuse=r"\b(?:broke|broken) the (?:back|hand|arm|leg)\b"),
    family("health", "profile", rf"\b(?:had|having|have had|get(?:ting)?|got) (?:my|the|an?|both|a new|new) (?:left "
        rf"|right"
        rf" )?(?P<object>{_BODY}|cataracts?|tonsils|appendix|pacemaker|gallbladder|braces|wisdom teeth|hearing aids?)"
        rf"\b.{{0,20}}?\b(?:done|out|in|off|removed|replaced|fitted|operated)\b", whom="own"),
    family("health", "profile", rf"(?:^|, )(?:my|our|the)? ?(?:left |right |bad |lower |whole |poor"
        rf" )*(?P<object>{_BODY})(?:'s|'re)?"
        rf"\b(?: (?:is|are|was|has|have|really|still|a bit|completely|started|keeps?))*(?: \w+){{0,3}}? {_AILING}\b",
        whom="anyone", refuse=r"\b(?:was|were) [a-z]+ing\b|\b(?:back (?:to|at|in|home|from|on)|you|your)\b|^back"
            r" (?!is|'s)\w+ (?:to|from|in)\b"),
    family("health", "profile", r"^my (?P<object>iron|blood sugars?|sugars?|vitamin [a-z]\d*|b12|ferritin|cholesterol"
        r"|blood pressure|thyroid|platelets|blood count)(?: levels?)?(?:'s| is| are| was| were| came back) .*\b"
        r"(?:low|high"
        r"|up|down|floor|roof|off|sky)\b", whom="own"),
    family("health", "profile", rf"^(?:it's|it is|(?:they|the doctor|doc) (?:found|reckons?|says?) (?:it's|it is|I"
        rf" have))"
        rf" (?:an? |my |the )?(?:[a-z]+ ){{0,2}}?(?P<object>{_CONDITION})\b", whom="anyone"),
    family("health", "profile", rf"(?<!no )(?<!any )\b(?P<object>{_CONDITION})\b", whom="own",
        refuse=rf"{_NOT}|\b(?:is|are|'s|'re|was|has|have) (?:now |all |finally |completely )?(?:gone|better"
            rf"|fine|cleared|healed|mended)\b|\boff (?:the |my )?crutches|\b(?:article|book|film|research"
            rf"|charity|awareness|my job|work in|study|studies|paper|what is"
        r"|what's|do you)\b"),
    family("health", "profile", r"\bI(?:'ve|'m| have| am)? (?:been |now )?(?P<object>sober|clean|smoke[- ]free"
        r"|teetotal|in recovery|in remission|cancer[- ]free)\b"),
    family("health", "profile", r"\b(?P<object>(?:afraid|scared|terrified|petrified|frightened) of (?!the thought"
        r"|losing"
        r"|missing|what|how|you)[a-z]+|fear of [a-z]+|can't see without [a-z ]+|left[- ]handed|short[- ]sighted"
        r"|hard of hearing|dizzy spells|wheelchair|prosthetic|crutches)\b", whom="own", refuse=rf"{_NOT}"
        rf"|\b(?:is|are|'s|'re|was|has|have) (?:now |all |finally |completely )?(?:gone|better|fine|cleared"
        rf"|healed|mended)\b|\boff (?:the |my )?crutches"),
)
FAMILY = (
    family("family:name", "profile", r"^(?:(?:my|our|the) )?(?:new |current )?(?P<about>boss|manager"
        r"|line manager|supervisor"
        r"|landlord|landlady|coach|trainer)(?:'s| is) (?:now )?(?:called |named |a (?:man|woman|guy|bloke) called )?"
        r"(?P<object>(?-i:[A-Z])[a-z]+(?: (?:de |van )?(?-i:[A-Z])[a-z]+)?)\b", whom="anyone", confidence=0.85),
    family("pronouns", "profile", r"\b(?P<object>they/them|she/her|he/him|she/they|he/they|ze/zir)\b",
        whom="anyone", single=True),
    family("family:name", "profile", r"\bmy (?P<about>best friend|best mate|bestie|bff)(?:'s| is) (?:still |now"
        r" )?(?P<object>[a-z]{3,10})(?=$| (?:though|but|and|tho))", whom="own",
        refuse=r"\bis (?:still )?(?:mad|sad|sick|away|gone|here|there|not|the|moving|getting|so|too)\b"),
    family("relationship_status", "profile", rf"(?:\b(?:I|we)(?:'ve|'re|'m| have| are| am)?|^{NAME} and I|^(?:my|our)"
        rf" \w+ and I) (?:\w+ )?(?P<object>split up|broke up|broken up|parted(?: ways)?|separated|(?:got "
        rf"|getting |been )?(?:engaged"
        rf"|married|divorced)|got hitched|tied the knot|called it quits|moved in together|back together|no"
        rf" longer together|not together any ?more)\b(?!.*\?)",
        whom="own", single=True, confidence=0.9),
    family("relationship_status", "profile", rf"\b(?:asked|told) (?P<object>{NAME}) to move out\b|\b(?:dumped|divorced"
        rf"|am seeing|'m seeing|met) (?P<about>{NAME})(?=$| (?:in|on|last|for|after|and))", whom="self",
        refuse=r"\b(?:met|left) .*\b(?:for (?:lunch|coffee|dinner|drinks)|at (?:the|work))\b", confidence=0.75),
    family("relationship_status", "profile", r"\b(?:met|seeing|dating|going out with) (?P<object>someone|somebody|this"
        r" (?:lady|girl|guy|man|woman|bloke|fella|lad)|an? (?:lovely |nice )?(?:girl|guy|man|woman|bloke|fella"
        r"|lad|lady))\b"),
    family("pregnancy", "profile", r"\b(?:I|we)(?:'m|'re| am| are) (?:\w+ )?(?P<object>(?:pregnant|expecting(?!"
        r" (?:you|a"
        r" (?:call|parcel|delivery)|the|it|visitors|guests))|having (?:an? )?(?:baby|twins|boy|girl|child)))\b",
        single=True, confidence=0.9),
    family("pregnancy", "profile", rf"\b(?:baby|she|he|it|due|[A-Z]\w+)(?:'s|'re| is| are)? (?P<object>due)\b.*"
        rf"\b{MONTH}\b|^due (?:in|on|the|at)\b.*", whom="anyone", single=True, refuse=r"\b(?:rent|paper|essay"
            r"|homework|bill"
        r"|assignment|library)\b"),
    family("family:birth", "profile", r"\b(?:was|were|is|he's|she's|they're|'s) (?P<object>born|here)(?:$| (?:on|at"
        r"|in|this"
        r"|last|yesterday|today|three|two|\d))", whom="anyone",
        refuse=r"^(?:I|we) |\b(?:when|before) I was born|everything|spring|summer|winter|autumn|weekend|^(?:it|that)\b"
        r"|\b(?:he's|she's|is|'s) here (?:at|in|on|this|today)|born in [A-Z]"),
    family("family:loss", "profile", rf"\b(?:lost|buried|said goodbye to) (?:my |our )?(?P<object>(?:late )?(?:{_KIN}"
        rf"|{_ANIMAL}|{NAME}))\b(?! (?:keys|phone|number|job|mind|way|temper|voice|bag|luggage))", whom="self",
        confidence=0.85),
    family("family:loss", "profile", rf"\b(?:my|our) (?:late )?(?P<object>{_KIN_MORE}|{_ANIMAL})\b.*\b(?:died|passed"
        rf"(?: away)?|is gone|has gone|he's gone|she's gone)\b|\b(?P<about>{NAME}) (?:died|passed away)\b",
        whom="anyone",
        confidence=0.85),
    family("pet", "profile", rf"\b(?:{_ANIMAL})(?:'s)?\b.*?(?:,| is| was|'s)? (?:called|named|name is|name's)(?: now|"
        rf" going to be)? (?P<object>[a-z]+)|\b(?:dog|cat|pup|puppy|kitten|pet)'s name (?:is|was|'s) "
        rf"(?P<about>[a-z]+)",
        whom="anyone", confidence=0.9),
    family("pet", "profile", rf"\b(?:adopt(?:ed|ing)?|get(?:ting)?|got|gotten|have|'ve|has|pick(?:ed|ing) up|bought"
        rf"|buying|rescu(?:ed|ing)|rehom(?:ed|ing)|foster(?:ed|ing)?|keep|own|inherited|took in|taken in|there's|'s"
        rf"|with)"
        rf" (?:got )?(?P<object>(?:an?|another|the|two|three|four|five|six|\d+|our|some|my) (?:[a-z-]+"
        rf" ){{0,3}}?{_ANIMAL})\b(?! (?:food|toy|bed|hair|person|lover|video|and chips|fingers|pie|in the))",
        whom="own",
        refuse=r"\b(?:call|look|work) like|\b(?:chicken|fish|duck|pig) (?:for|with|and)|\b(?:he|she|they|you)(?:'s|"
            r" has)"
        r"|\bsheep's|guess who|for (?:dinner|lunch|tea)"),
    family("pet", "profile", rf"^(?:I|we)(?:'ve| have)(?: got)? [^.;]{{2,40}}\band (?P<object>(?:an?|two"
        rf"|three) (?:[a-z]+ ){{0,2}}?"
        rf"{_ANIMAL})$"),
    family("pet", "profile", rf"^(?P<object>{NAME})(?:'s| is) (?:my|our|a|an|the) (?:[a-z-]+ ){{0,3}}?{_ANIMAL}\b",
        whom="anyone"),
    family("family:called", "profile", r"\b(?:(?:her|his|its|their) name(?:'s| is| was)?|(?:she|he|it)(?:'s| is| was)"
        r" (?:called|named)|(?:called|named) (?:her|him|it)|we(?:'ve)? (?:named|called)) (?P<object>[A-Z]\w+)\b",
        whom="anyone", refuse=r"\b(?:book|film|song|band|restaurant|game|street)\b", confidence=0.85),
    family("family:called", "profile", r"\b(?:an?|the|my|our|some|this) (?:[a-z-]+ ){0,4}?(?:guy|man|woman|girl|boy"
        r"|lad|friend|mate|colleague|brand|client|company|band|place|house|boat|car|farm) (?:here )?(?:called|named)"
        r" (?P<object>[A-Z]\w+)\b", whom="own"),
    family("family:name", "profile", rf"^(?:my|our) (?:[a-z]+ )?(?P<about>supervisor|advisor|tutor|landlord|landlady"
        rf"|coach"
        rf"|colleague|neighbou?r|therapist|friend|mate|ex|trainer|agent|editor|instructor|professor|client|best mate)"
        rf",? (?:is |called |named )?(?:still )?(?:Dr\.? |Mrs?\.? |Ms\.? |Prof\.? )?(?P<object>{NAME}(?: {NAME})?)",
        whom="own",
        confidence=0.9),
    family("family:name", "profile", rf"\b(?:my|our) (?:[a-z]+ )?(?P<about>{_KIN_MORE})(?:,| is| is still|'s still|"
        rf" called)? (?P<object>(?![a-z]+ (?:minute|hour|day|night|week|weekend|month|year|time)s?\b)"
        rf"(?!always|never|still|also|just|only|and|or|who|but|says|said|thinks|is|was|has|had"
        rf"|does"
        rf"|did|got|gets|will|would|can|keeps|wants|loves|hates|from|in|at|on|to|for|with|has|i|the|a|an|of|that|they"
        rf"|he"
        rf"|she|we|you|it|are|were|have|do|when|if|as|so|because|now|then|too|there|here|about|like|both|all|went|came"
        rf"|made|told|gave|took|died|back|really|even|over|out|up)[a-z]{{2,9}})(?: (?:does|is|was|has|says|isn't"
        rf"|wasn't"
        rf"|can|got|who|and I|lives|works|makes|goes|won't|will|had|did|came|went|thinks|[a-z]{{3,}}s)\b|'s )",
        whom="own", refuse=rf"\b(?:my|our) (?:[a-z]+ )?{_KIN_MORE} (?:[a-z]+s|[a-z]+ed|[a-z]+ly|[a-z]+ing) ",
        confidence=0.85),
    family("children", "profile", r"^(?:I've got |I have |we have |we've got |with |and |mum of |mom of |dad of "
        r"|father of"
        r" |mother of )?(?P<object>(?:one|two|three|four|five|six|\d|a couple of|twin) (?:[a-z-]+ )?(?:kids|boys|girls"
        r"|sons|daughters|children|grandkids|grandchildren|lads|grandsons|granddaughters)\b.*)", whom="anyone",
        single=True, refuse=r"\b(?:at|in) (?:the )?(?:school|class|park)\b|\btold|\bhow\b"),
    family("family", "profile", rf"^(?:my|our|his|her)? ?(?:\w+ )?(?P<object>{_KIN_MORE})(?:,? (?:Dr\.?"
        rf" )?{NAME},?)?(?:'s|'ve"
        rf"|'re| is| are| was| were| has| have| had)? (?:(?:just|also|now|still|finally|recently|already|only|not"
        rf"|been) )*"
        rf"(?:an? [a-z]|\d|(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b|lives?\b|living"
        rf"|works?\b"
        rf"|working|moved|moving|got\b|getting|passed|finished|finishing|start(?:s|ed|ing)|flying|visiting|staying"
        rf"|stays"
        rf"|coming (?:over|up|down|to|in|for)|com(?:es|ing) (?:over|every)|runs\b|running|lost\b|quit\b|bought|sold"
        rf"|turn(?:s|ed|ing) \d|retired|broke\b|had\b"
        rf"|teach(?:es|ing)|stud(?:ies|ying)|plays|took\b|graduat\w+|joined|left\b|expecting|pregnant|born|due\b|at"
        rf" (?:uni"
        rf"|college|school)|in (?:year|[A-Z]|hospital|care|prison|the [A-Z])|off (?:to|at)|from [A-Z]|lending|helping"
        rf"|does the|does a|married"
        rf"|engaged|divorced|diagnosed|swapped|chosen|doing (?:a|an|the|her|his)|made (?:it|the|a)|into [a-z]+"
        rf"|mad (?:about|on)|obsessed|scared|allergic|vegan|vegetarian|deaf|blind|called|named|rings?|(?:a )?retired"
        rf"|screams|travelling|traveling|freelanc\w+|training|joining|signed|won\b|died|buried|arrived|has\b"
        rf"|gave birth"
        rf"|adopted|wants to (?:be|become|study))\b", whom="own",
        refuse=rf"{patterns_en.PHONED}|\b(?:rang|phoned|texted|messaged|e-?mailed)\b"
            r"|\b(?:says|said|thinks|told|asked|you|your|lately|annoying|had a (?:laugh|go|nap|cry|fit)|at it"
            r" again)\b"
        r"|\bhas (?:been )?(?:at|on about|a point|no idea)|'s (?:such|so|like|being)\b|\bgot (?:mad|angry|upset|me"
        r"|the hump)"
        r"|^(?:baby|family|girls|boys|friends|mate)\b"),
    family("family", "profile", rf"^(?:my |our )?(?P<object>(?:{NAME}(?:'s {_KIN_MORE})?)|{_KIN_MORE})(?:'s|'ve| is|"
        rf" are| has| have|) (?:(?:just"
        rf"|also|now|still|finally|already|not|been) )*(?:(?:diagnosed|moved|moving|had (?:a|an|his|her|the)|passed"
        rf"|gone (?:to|into)|swapped|taken up|dropped|signed|switched|stopped|won|been|got(?:ten)? (?:a|an|the|into"
        rf"|married|engaged|his|her|in)|starts?|starting|started|retir(?:ed"
        rf"|ing)|works?|working|lives?|living|born|expecting|pregnant|allergic|obsessed|seven|eight|nine|ten|six|five"
        rf"|four"
        rf"|three|two|\d+|an? {OCCUPATION}|freelancing|studying|training|getting (?:married|engaged)|left|quit|chosen"
        rf"|into [a-z]+|lost|finished|turn(?:s|ed|ing)|going to (?:uni|college|school|[A-Z])|at [A-Z]|in [A-Z])\b)",
        whom="named", refuse=r"^(?:The|This|That|There|It|He|She|They|What|Who|How|When|Where|Why|And|But|So|Or|No"
            r"|Yes|Not"
        r"|Just|Good|Great|Nice|Oh|Well|Now|Then|Today|Tomorrow|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday"
        r"|Sunday"
        r"|I|I'm|I've|I'll|You|We|Still|To|From|With|For|At|In|On|Of|A|An|My|Our|Your|His|Her|If|As|By|Both|All|Some"
        r"|Any|Maybe|Please|Thanks|Hi|Hello|Hey|Love|Sounds|Looks|Can|Could|Would|Do|Does|Did|Have|Has|Is|Are"
        r"|Was|Let|Get|Go|Come|Got|Had|Been|Lost|Work|Life|Time|Mine|Everyone|Everything|Nothing|Something|Party"
        r"|Christmas|Google)\b|\b(?:you|your)\b|\?"),
)
ARRIVALS = (
    family("home", "profile", r"^(?:hi+ |hello |hey |greetings |good (?:morning|evening|afternoon) )?from"
        r" (?P<object>[a-z]+(?: [a-z]+)?)$", whom="anyone",
        single=True, refuse=r"\b(?:work|school|bed|now|me|scratch|home|then|here|there|memory|today)\b",
        text="is in {object}", confidence=0.8),
    family("home", "profile", r"^(?:my |our )?first (?:day|night|week|weekend|month|morning) (?:here )?(?:in|at)"
        r" (?:the |our |my"
        r" )?(?P<object>(?!work|school|uni|job|bed|office|new job|gym)[a-z]+(?: [A-Z][a-z]+)?)",
        whom="anyone", single=True,
        confidence=0.8),
    family("home", "profile", r"^(?:I|we)(?:'m|'re| am| are| was| were)? (?:\w+ )?(?:in|at|up in|down in|out in|near)"
        r" (?:the"
        r" )?(?P<object>(?:\d+ )?[A-Z][\w' -]+?)(?: (?:now|these days|since|with|until|till|for|at the moment"
        r"|in)\b.*)?$",
        single=True, refuse=r"\b(?:meeting|traffic|love|Starbucks|Tesco|Costa|the airport)\b", confidence=0.8),
)
PLACES = (
    family("home", "profile", r"\b(?:liv(?:e|es|ed|ing)|based|settled|rent(?:ing|ed)?|stay(?:ing|ed)?|shar(?:e"
        r"|ing) an?"
        r" (?:flat|house|place|room)|found (?:a|our|my) (?:\w+ )?(?:place|flat|house|home)|got (?:an? |our |my |the )?"
        r"(?:place|flat|house|studio|room|keys|bungalow|cottage)|(?:house|flat|apartment|place|bungalow|cottage|two-up"
        r" two-down|terrace|semi|studio|room)(?:'s| is)?)\b.*?\b(?:in|at|by|near|to|on|off) (?:the |a )?"
        r"(?P<object>[A-Z][\w'-]+(?: [A-Z][\w'-]+)?)", whom="own", single=True,
        refuse=r"\b(?:used to|he|she|they|hotel|airbnb|his|her|their)\b|\bplace (?:in|at|on) .*\b(?:marathon|race"
            r"|team|squad"
        r"|choir|uni\w*|college|school|class|course|programme|program|play|final|band|league)\b|^(?:my|our) (?!place"
        r"|flat|house|new|home"
            r"|apartment"
        r"|studio|room|bungalow)\w+", confidence=0.85),
    family("home", "profile", r"^(?:I|we)(?:'m|'ve|'re| have| am| are| both)? (?:\w+ )?(?:liv(?:e|ed|ing)|based"
        r"|settled|moved|moving back"
        r"|relocated|renting|staying|downsized) (?:here |back |over |up |down |out |across |together |now |just "
        r")*(?:to"
        r"|in|into|near|at|from|with) (?P<object>(?!it\b|that\b|the (?:moment|morning|end)|bed\b|time\b|a (?:while|bit"
        r"|week)|my (?:shell|head))[a-z0-9].+)", single=True, refuse=r"\b(?:hotel|airbnb)\b|\bmoved (?:to|on to)"
            r" (?:tears"
        r"|the next)|\bmoved (?:it|the date)", confidence=0.8),
    family("home", "profile", r"^(?:I|we)(?:'ve| have)?(?: now| just| finally)*(?: got| taken| rented| found"
        r"| took| rent)? (?:an? |the )"
        r"(?:[a-z]+ ){0,2}(?P<object>(?:flat|house|houseboat|flatshare|box room|loft|annexe"
        r"|bungalow|studio|apartment|place|room|cottage|bedsit|condo)\b.*\b(?:in|at|on|by|near|over|above|off"
        r"|outside|with|overlooking|to|for)\b.*)", single=True,
        refuse=r"\b(?:sold|holiday|for sale|viewing)\b"),
    family("home", "profile", r"^(?:I|we)(?:'m|'re| am| are)? (?:now )?(?:rent(?:ing)?|shar(?:e|ing)|hous(?:e"
        r"|ing)[- ]?sit(?:ting)?) (?:an? |the )"
        r"(?:[a-z]+ ){0,2}(?P<object>(?:flat|house|houseshare|room|place|studio|apartment|cottage)\b.*)", single=True),
    family("home", "profile", r"^(?:I|we)(?:'ve)? (?P<object>live|sleep|stay) (?:\w+ )?(?:together|alone|downstairs"
        r"|upstairs"
        r"|by (?:myself|ourselves))\b.*", confidence=0.8),
    family("home", "profile", r"\b(?:moved|moving) in(?:to)? (?:with|together)\b|\b(?:I'm|we're) with (?:my|our)"
        r" (?P<object>\w+)\b.*\b(?:till|until|for now)\b", whom="own", confidence=0.8),
    family("property", "custom", r"\b(?:we|I)(?:'ve)? (?:finally |just )?(?P<object>(?:got|bought|sold|lost|completed"
        r" on|exchanged"
        r" on|gave up|given up) (?:the|our|my|a) (?:[\w-]+ )?(?:house|flat|apartment|bungalow|place|cottage))\b"),
    family("origin", "profile", r"\b(?:from|of) (?P<object>[A-Z]\w+) originally\b|\boriginally(?: from)?"
        r" (?P<about>[A-Z]\w+)"
        r"|\b(?:moved|came|come|arrived|emigrated) (?:here |over |back )*from (?:the )?(?!.*\bwork\b)(?:[a-z]+)\b",
        whom="own",
        single=True, refuse=r"\b(?:he|she|they)\b"),
)
WORK = (
    family("occupation", "profile", rf"^(?:(?:just )?(?:an?|the) )?(?P<object>(?:[a-z-]+ ){{0,2}}?{OCCUPATION}) (?:at"
        rf"|in|since|as of"
        rf"|for|on|with)\b.*", whom="anyone", single=True, refuse=r"\b(?:need|good|great|best|any|some|my|your|their"
            r"|his"
        r"|her|is|was|said|says|called|for (?:a|the|my))\b|^(?:doctor|officer|coach|chef|nurse)$", confidence=0.8),
    family("occupation", "profile", rf"^(?:I|we)(?:'m|'ve| am| have|'ll)?\b.*?\b(?:as|am|'m|been|be|become|became"
        rf"|made me|now|a|an)"
        rf" (?:an? |the |my |their )?(?P<object>(?:[a-z-]+ ){{0,2}}?{OCCUPATION}|team lead|sous chef|head chef|head"
        rf" of [a-z ]+"
        rf"|deputy head|partner at [A-Z]\w+)\b", single=True,
        refuse=r"\bbeen to (?:the|my|an?|see) |\b(?:need|see|seeing|seen|saw|want|wanted|call|calling|called|with"
            r"|met|meeting|visiting|consulting"
            r"|hiring|booking|ringing|phoning|texting|messaging|paying|dating|(?:talking|speaking) to|know|asked|hired"
            r"|book|to (?:the|my|a) (?:doctor"
        r"|dentist|physio|vet|nurse|manager)|found|from|off|under|beside|for|by|like) (?:an? |the |my )?(?:\w+ "
        r"){0,2}?\w+|\bnot\b|\bmy"
        r" (?:doctor|boss"
        r"|manager|physio|coach|dentist)\b", confidence=0.85),
    family("occupation", "profile", r"\b(?:they(?:'ve)?|boss|I've been|I was|I got|just been|been) (?:\w+ )?(?:made"
        r"|promoted"
        r"|appointed|named|bumped)(?: me)?(?: up)?(?: to)? (?:an? |the )?(?P<object>[a-z]+(?: [a-z]+){0,3})",
        whom="anyone",
        single=True, refuse=r"\bredundant|^(?:he|she)\b|\bmade (?:up|me (?:cry|laugh|smile|feel|a|think|so|an?|do"
            r"|haircut))\b",
        confidence=0.85),
    family("occupation", "profile", r"^(?:I|we)(?:'m| am)? (?:\w+ )?(?P<object>(?:teach|driv(?:e|ing)|run|manag(?:e"
        r"|ing)|sell|"
        r"doing|fix|repair|supervis(?:e|ing)|clean|cook|nurse|farm|coach|lead|design|edit|bak(?:e|ing)|cut hair|do"
        r" hair|own)"
        r" (?!it|that|this|the (?:car|bus|kids|dishes|washing|shopping|test)|my|me|him|her|them|well|good|ok"
        r"|fine|great"
        r"|something|everything|things|a bit|a lot|to|better|into|out|late|past|errands)[a-z].*\b(?:for|at|in|out of"
        r"|normally"
        r"|haul|years?|company|outfit|firm|school|team|shop|store|department|children|kids|truck|lorry|bus|taxi|cab"
        r"|deliver\w+"
        r"|buses|trucks|business|bakery|farm|restaurant|pub|cafe|salon)\b.*)", single=True,
        refuse=r"\brun (?:for|in|at|out|every|a lot)|\bdoing (?:the|a|my|some|homework|research|yoga|pilates"
            r"|[a-z]+ing)\b|"
        r"\bdriv(?:e|ing) (?:home|to|in|at|for|past|up|down|me)\b|\bcook (?:for|at|in|dinner|a)\b|years? old",
        confidence=0.8),
    family("occupation", "profile", r"^(?:I|we)(?:'m|'ve| am| have|'ll)? (?:.*\b)?(?P<object>retired|self[-"
        r" ]employed|freelance"
        r"|freelancing|unemployed|between jobs|on (?:maternity|paternity|parental|sick) leave|made redundant|stay[-"
        r" ]at[- ]home"
        r"|packing (?:the|my|it) [a-z]+ in|a retired [a-z]+)\b", single=True, refuse=rf"{_NOT}|\bwant|\bhope"
            rf"|\bwhen\b"),
    family("occupation", "profile", r"^(?:I|we)(?:'m| am)? (?:now |back )?(?:in|on|at) the (?P<object>(?:[a-z]+ "
        r"){1,3}now (?:at"
        r"|for|with|in) [A-Z].*)$", single=True),
    family("work_change", "profile", r"^(?:I|we)(?:'ve|'m|'re| have| am)? (?:just |also |finally |now |had to "
        r"|already )*"
        r"(?P<object>(?:left|quit|leaving|quitting|(?:gave|given|giving|put in|handed in) notice|resign(?:ed|ing"
        r")(?: from)?|handed (?:in )?my notice(?: in)?"
        r"|handing (?:in"
        r" )?my notice(?: in)?|g[ai]ven? up|give up|packed in|applied (?:to|for)|got (?:a|the) (?:\w+ )?job|landed"
        r"|starting (?:at|as|a"
        r" (?:\w+ )?job)|start(?:ed)? (?:at|as|a (?:\w+ )?job|my (?:own )?(?:business|practice|company))|cutting down"
        r" to|going"
        r" (?:back )?(?:to work|part[- ]time|full[- ]time|self[- ]employed|freelance)|gone part[- ]time|dropped (?:to"
        r"|down)"
        r"|dropping (?:to|down)|retraining|retrained|training (?:as|to be)|switched (?:to|careers|jobs)|opened"
        r"|opening|set up"
        r"|setting up|taking over|took over)\b.*)", refuse=r"\b(?:left|quit) (?:the (?:house|party|room|oven|gym"
            r"|window|door"
        r"|relay|team|group)|my (?:phone|keys|bag|wallet|umbrella)|(?:early|it|him|her|them|you|home|a (?:note"
        r"|message|tip)"
        r"|smoking|drinking|sugar|coffee))|\bg[ai]ven? up (?:on|smoking|drinking|sugar|meat|coffee|hope|trying|the"
        r" (?:flat"
        r"|house))|\bleaving (?:on|at|for(?! good)|tomorrow|tonight|today|early|late|now|soon|the house)\b"
        r"|\bopen(?:ed|ing) (?:the|my|up|a (?:bottle|window|door|jar))\b|\bset up (?:the|my|a (?:tent|call))",
        confidence=0.85),
    family("work_terms", "profile", r"^(?:(?:I|we)\b.*?|my (?:shifts?|hours|job|boss|manager|office|company|team"
        r"|biggest"
        r" client|clients?|work)\b.*?|(?:she|he)\b.*?|(?:light duties|nights?|days?|shift).*?)\b(?P<object>(?:(?:one"
        r"|two|three|four|five"
        r"|six|\d) days (?:a|per) week|(?:to|at) (?:two|three|four|\d) days|part[- ]time|full[- ]time|\d+ (?:percent"
        r"|%)"
        r"|four on four off|night shifts?|nights|twelve[- ]hour shifts?|12[- ]hour shifts?|wfh|work(?:s|ing)? from"
        r" home"
        r"|remote(?:ly)?|light duties|on call|overtime|off (?:till|til|until)\b.*|paternity leave|maternity leave"
        r"|agreed .*week"
        r"|client(?:s)?|weekends|every (?:other )?weekend))\b", whom="own",
        refuse=r"\b(?:would|swim|run|train|gym|study|revise|yoga|read)\b"),
    family("occupation", "profile", r"^(?:I|we)(?:'m| am|'ve been| have been)? (?:\w+ )?(?P<object>(?:still |back "
        r"|now )*(?:at|in|on|with) the"
        r" (?:hospital|ambulance|school|bakery|office|factory|shop|bank|council|post office|library|police|fire"
        r" (?:service"
        r"|station)|army|navy|warehouse|surgery|garage|farm|mine|railway|docks|plant|clinic)\b.*)", single=True,
        refuse=r"\b(?:today|tonight|yesterday|with a|waiting|queue|visiting|tomorrow)\b", confidence=0.8),
    family("business", "profile", r"^(?:I|we)(?:'ve| have)? (?:\w+ )?(?P<object>(?:run|own|opened|started|set up|took"
        r" over|bought|supply"
        r"|have) (?:an?|my|our|the|three|two) (?:[a-z-]+ ){0,3}?(?:business|company|shop|store|studio|bakery|caf[eé]s?"
        r"|restaurant|gym|blog|channel|farm|startup|salon|agency|garage|practice|stall|food truck|b&b|guesthouse|pub"
        r"|brewery"
        r"|nursery|workshop)\b.*)", single=True),
)
STUDY = (
    family("studies", "profile", r"\b(?:PhD|doctorate|master'?s|bachelor'?s|degree|a[- ]?levels|gcses|diploma"
        r"|apprenticeship|mba|msc"
        r"|thesis|dissertation|my finals|postdoc)\b(?P<object>)?", whom="own",
        refuse=r"\b(?:he|she|they|his|her|finished their)\b", confidence=0.85),
    family("studies", "profile", r"\b(?:I'm|I am|I'm still|we're|as) (?:an? |the |in my |in the |in |going into"
        r" )?(?P<object>(?:[a-z]+ "
        r")?(?:sophomore|freshman|junior|senior|fresher|undergrad(?:uate)?|postgrad(?:uate)?|student|(?:first|second"
        r"|third|fourth"
        r"|final|last|\d(?:st|nd|rd|th)) year|year (?:\d+|[a-z]+)|sixth form|(?:\d+(?:th|st|nd|rd)|[a-z]+th)"
        r" grade)\b.*)",
        refuse=r"\b(?:senior|junior) (?:dev|engineer|manager|nurse|doctor|consultant|analyst)", single=True),
    family("studies", "profile", r"^(?:kelp|)?(?P<object>(?:I|we)(?:'m|'ve| am)? (?:study|studying|reading|read"
        r"|majoring in|minoring in"
        r"|researching|specialis(?:e|ing) in|specializ(?:e|ing) in|learning|learn|learned|learnt|taking|take|doing|do"
        r"|started|signed up"
        r" for|enrolled (?:in|on)|passed)\b.*\b(?:class(?:es)?|courses?|lessons?|evening school|night school|workshop"
        r"|certificate"
        r"|law|medicine|biology|chemistry|physics|maths?|history|psychology|economics|engineering|nursing|accounting"
        r"|philosophy"
        r"|literature|linguistics|computer science|design|sociology|politics|architecture)\b.*)", confidence=0.8),
    family("studies", "profile", rf"^(?:I|we)\b.*?\b(?:learn(?:ing|t|ed)?|studying|practi[cs]ing|brushing up|speak"
        rf"|taking|started|know|fluent"
        rf" in|do|doing)\b.*?\b(?P<object>{_LANGUAGE})\b", refuse=rf"{_NOT}|\b(?:restaurant|film|food|wine)\b"),
    family("studies", "profile", r"^(?:I|we)(?:'m|'ve|'re| am| have)? (?:\w+ )?(?:started |been )?(?:learn(?:ing|t|ed"
        r"|s)?|teaching myself|taught"
        r" myself|getting into|picked up|figuring out) (?:how )?(?:to )?(?P<object>(?!that|the hard|it|about|more"
        r"|from|a lot|so|to live|this|how (?!to))[a-z].+)",
        refuse=r"\bpicked up (?!the (?:guitar|piano|violin)|knitting|running|crochet)", confidence=0.8),
    family("skill", "profile", r"\b(?:got|have|has|passed|took) (?:my|the|an?|his|her) (?P<object>(?:[\w-]+"
        r" ){0,3}?(?:certificate|licen[cs]e|belt"
        r"|certification|badge|driving test|qualification|grade \w+))\b", whom="own"),
)
SKILLS = (
    family("plays", "profile", rf"^(?:I|we)(?:'ve)? (?:also |can |still |do |mostly |really |only |now |both"
        rf" )*(?P<object>{_ACTIVITY})\b(?! (?:the (?:risk"
        rf"|show)|a (?:bath|risk)|that|this|it|out of|late|away|home|into|up|down|back|around|off|to|with you|in"
        rf" circles)\b)",
        refuse=r"\b(?:would|could|yesterday|last (?:night|week)|tomorrow|play it|play (?:along|a part|dead|safe|games"
            r" with))\b|"
        r"\b(?:ride|lift|run|shoot|act|row) (?:the|my|a|an|him|her|on|in|like|for|at)\b"),
    family("plays", "profile", rf"^(?:I|we)(?:'m|'ve|'re| am| have)? (?:\w+ )?(?:been |started |took up |taken up "
        rf"|taking up |got into |gone back to |go |do"
        rf" |doing |joined |back to |into |trying |tried |play |playing |swapped it for |back )+(?:the |a |an |some "
        rf"|my )?(?:\w+ )?(?P<object>{_HOBBY})\b",
        refuse=r"\b(?:would|thinking)\b"),
    family("plays", "profile", rf"^(?:the )?(?P<object>{_HOBBY})(?:'s| is| are)? (?:\w+ )?(?:my|our) (?:thing|passion"
        rf"|hobby|life|escape|therapy|sport"
        rf"|main|jam)\b|^(?P<about>{_HOBBY}) (?:though|again|now|instead)?,? ?{_FREQUENCY}", whom="anyone"),
    family("member", "custom", r"^(?:I|we)(?:'m|'ve|'re| am| have)? (?:just |also |now |recently |even )*(?:joined"
        r"|joining|in|part of|a member of"
        r"|signed up (?:for|to)|run|help (?:at|out at|with)|volunteer(?:ing)? (?:at|for|with|in)) (?P<object>(?:an?"
        r"|the|our|my) (?:[\w'-]+ ){0,3}?"
        r"(?:choir|band|orchestra|team|league|club|troupe|society|quartet|ensemble|group|class|union|board|committee"
        r"|shed|quilters|guild|association"
        r"|food bank|shelter|scouts|gym|church|mosque|temple|co-op)\b.*)"),
    family("member", "custom", r"^(?:I|we)(?:'ve)? (?:also |just )*joined (?P<object>(?:the|a|an) .+)", refuse=
        r"\b(?:queue|call|meeting|chat|wifi)\b"),
)
HABITS = (
    family("habit", "custom", r"^(?:my )?(?P<object>(?:[a-z]+ )?(?:practice|training|rehearsals?|class(?:es)?"
        r"|lessons?|shifts?|therapy|choir|church|session|meetings?))(?:'s| is| are)"
        r" .*(?:\b(?:mon|tues|wednes|thurs|fri|satur|sun)day|\bevery\b|\d ?[ap]m\b.*day)", whom="anyone", refuse=
            r"\b(?:you|your|next|this|tomorrow)\b"),
    family("habit", "custom", rf"^(?=.*\b[a-z]{{3,}}\b.*\b[a-z]{{3,}}\b.*\b[a-z]{{3,}}\b).*?\b(?P<object>{_FREQUENCY}"
        rf")\b", whom="own",
        refuse=rf"{_PAST_VERB}|'ll\b|\bwill\b|\b(?:you|would|could|every time|wonder|remember when|the other|how"
            rf" often|what|ask|each other|miss(?:ed)?|might)\b|"
        r"\b(?:never|wish)\b|^(?:every|each) (?:year|day|time) (?:the|it)\b|\b(?:was|were|used to)\b|^(?:see|talk"
        r"|catch|meet) (?:you|ya)",
        confidence=0.8),
)
_FUTURE = (
    r"(?:\b(?:will|going to|gonna|plan(?:s|ning|ned)?|booked|due|scheduled|start(?:s|ing)?|arriv(?:es|ing)"
    r"|fly(?:ing)?|flies|mov(?:e|es|ing)|leav(?:e|es"
    r"|ing)|getting|visiting|coming|comes|running|doing|having|seeing|hosting|travell?ing|opening|closing|clos(?:e"
    r"|es)|signed up|registered|entered"
    r"|is|are|has been|have(?! been in\b)|has|got|supposed to|set for|ends?|begins?|packing"
    r"|selling|joining|going|retir(?:e|es|ing)"
    r"|deferred|moved|pushed|till|until"
    r"|off to|picking up|meeting|away|returning|back|taking)\b|'ll\b|'m\b|'re\b|'s\b)"
)
#: What happens to anybody on a day that is named.
DATED = (
    family("plan", "custom", rf"^(?=.*(?:\b{DATE}|\b(?:on|next|this|last|since|until|till|from|by) (?:the "
        rf")?{DAYS}|\b(?:in|since|until|till|from|by|of|early"
        rf"|late) (?:the end of )?{MONTH}\b|\b{DAYS} (?:the|week)\b|\b{DAYS} coming|\b\d{{1,2}}(?:st|nd|rd|th)\b"
        rf"))(?=.*\b(?:is|are|was|were|has|had|have"
        rf"|will|shall|goes?|going|[a-z]+ed|starts?|comes?|'ll|took|got|went|came|left|gave|made|met|began"
        rf"|slipped|scoping|due)\b|.*'(?:s|re|ve|ll|m)\b)"
        rf"(?P<object>.{{15,}})$", whom="anyone",
        refuse=r"^(?:that|this|there|these|those|what|who|how|when|if|can't|the (?:film|match|shop|weather|news"
            r"|bus))\b|\b(?:you|your|yours|weather|gorgeous"
        r"|lovely|is (?:fine|good|ok|okay|great|perfect|best|free)|suits|works for|can do|would|could|might"
        r"|thought|said|joke|episode|season \d)\b|\bas (?:promised|planned|agreed|expected|usual|scheduled)$",
        confidence=0.75),
)
PLANS = (
    family("plan", "custom", rf"^(?=.*{_FUTURE})(?=.*(?:\b(?:on|at|in|from|this|next|by|until|till|til|for|before"
        rf"|starting|the)\b )?(?:{DATE}|{TIME}|\b(?:next"
        rf"|this|on|coming) (?:{DAYS}|week|weekend|month|year)|{DAYS} (?:at|the|\d)|on the {DAYS}|in (?:the"
        rf" )?(?:spring|summer|autumn|fall|winter|new year)|\bin"
        rf" {MONTH}\b|\b(?:end|start|beginning|middle) of (?:the (?:month|year)|{MONTH})|20[2-4]\d)(?=\W|$))(?:I|we"
        rf"|my|our|the|{NAME} and I|(?:she|he|they|{NAME})(?:'s|'re|'ll| is| are)?"
        rf" (?:\w+ )?(?:coming|visiting|moving|flying|arriving|starting|due|start|starts))\b(?P<object>.*)",
        whom="anyone",
        refuse=r"\b(?:you|your|soon|tonight|every|each|was|were|did|is (?:fine|good|ok|okay|perfect|great|too)|works"
            r"|ended|last (?:week|month|year)|miss|weather|rain|forecast|snow|kettle|dishes|dinner|lunch"
        r"|breakfast|after work|since|ago)\b|^(?:the|my) (?:film|movie|shop|bus|news|match|weather|store)\b"
        r"|\b(?:always|usually|normally|often)\b|\b(?:ready|excited|nervous|psyched|pumped|stoked|hyped|glad|done|happy"
        r"|here|desperate|thrilled|(?:looking forward|counting down)) (?:for|about|to|till|until|with)? ?(?:the "
        r"|this |next |my"
        r" |our |a )*(?:long )?(?:weekend|week|month|year|summer|winter|spring|autumn|holidays?|Christmas|tomorrow"
        r"|tonight"
        rf"|{DAYS})$",
        confidence=0.8),
    family("plan", "custom", r"^(?:an? )?(?P<object>(?:(?:\d+|[a-z]+)[- ](?:day|week|night)s? )?(?:trip|holiday|break"
        r"|cruise|retreat|honeymoon|getaway|flights?|tickets)"
        r" (?:to|in|for) .*\b(?:booked|sorted|planned|on|in|from|next|this)\b.*)", whom="anyone", refuse=
            r"\b(?:you|your|was|were|cost|ideas)\b"),
    family("plan", "custom", rf"^(?:my |the |our )?(?:new )?(?P<object>{_THING}|sofa|bed|fridge|oven|results?|parcel"
        rf"|visa|passport) (?:comes?|arrives?|is coming|are coming|is due"
        rf"|gets here|turns up) .*(?:{DATE}|{TIME}|{DAYS}).*", whom="anyone", refuse=r"\b(?:you|your|was|were)\b"),
    family("plan", "custom", rf"^(?P<object>(?:fitness |driving |medical |job )?(?:viva|review|exam|test|wedding"
        rf"|flight|interview|operation|surgery|appointment"
        rf"|ceremony|party|scan|move|trip|concert|match|race|deadline|delivery|visit)s?(?:'s| is| are)?\b.*(?:{DATE}"
        rf"|{TIME}|\b{DAYS}).*)", whom="anyone",
        refuse=r"\b(?:you|your|was|were)\b"),
)
EVENTS = (
    family("event", "custom", rf"^(?:I|we|they)(?:'ve|'m| have)? (?:\w+ly |just |also |finally |only |now |fully "
        rf"|been |never )*(?P<object>{_MILESTONE}\b.*|qualified|graduated"
        rf"|passed|retired|got in)", whom="own",
        refuse=r"\b(?:you|your|it's|that's|this|the (?:oven|dishes|washing|kettle|laundry)|started (?:crying|laughing"
            r"|to|it|the|with|a few)|stopped (?:at|for|by|in|me|the)"
        r"|lost (?:my|the) (?:keys|phone|mind|temper|way|thread|count|track)|lost (?:it|count|track)|won't|ran (?:out"
        r"|into|late|away|over|for)|finished (?:work|dinner"
        r"|lunch|it|eating)|bought (?:some|milk|bread|food|lunch|dinner|a (?:coffee|sandwich|drink|ticket|present"
        r"|gift|card))|bought .* for|quit (?:it|the app)"
        r"|something|lunch|dinner|that)\b|^they\b(?!.*\bme\b)", confidence=0.8),
    family("event", "custom", rf"^(?:I|we) .*\b(?:yesterday|last (?:week|month|year|night|summer|weekend|{DAYS})|on"
        rf" {DAYS}|in {MONTH}|(?:{DATE})|(?:two|three|four|five|\d+|a"
        rf" few) (?:days|weeks|months|years) ago)\b(?P<object>)?", refuse=r"\b(?:you|your|slept|watched|ate|cooked"
            r"|made|had (?:a|some|the) (?:nap|coffee|tea|lunch|dinner|bath)"
        r"|had (?:an? |some |the )?(?:great |good |nice |lovely |long |quick |really |proper |brilliant "
        r"|fun )*(?:chat|talk"
        r"|catch-?up|conversation|time|laugh|day|night|evening|walk|meal|drinks?|gossip)\b"
        r"|was (?:so|tired|bored)|hardly|thought|felt|that|it|this|them|out with)\b", confidence=0.8),
    family("event", "custom", r"^(?:guess who (?:just )?)(?P<object>(?:made|got|passed|won|finished|landed) .+)",
        whom="anyone"),
    family("work_history", "profile", r"^(?:I|we)(?:'ve| have) (?:\w+ )?(?:been|done|had|worked|run|lived|kept|taught"
        r"|driven|played) .*\b(?P<object>(?:\d+|[a-z]+(?: [a-z]+)?)"
        r" years|since (?:19|20)\d\d|my whole life|all my life)\b", refuse=r"\b(?:been (?:years|ages|waiting|meaning)"
            r"|you|it)\b"),
)
OWNS = (
    family("owns", "custom", rf"\b(?:bought|got|own|have|'ve|has|picked up|inherited|ordered|traded|built|drive|kept"
        rf"|keep|sold|restor(?:ed|ing)|sav(?:e|ing)(?: up)? for|treated"
        rf" myself to|my)(?: got)? (?:myself |ourselves )?(?P<object>(?:(?:an?|my|our|the|one|two|three|some|this"
        rf"|that) )?(?:[\w-]+ ){{0,4}}?{_THING})\b", whom="self",
        refuse=r"\b(?:have|had|got|has|'ve) (?:got )?(?:an?|some|another|the|this|any|two"
            r"|no) (?:\w+ ){0,2}?(?:questions?"
        r"|problems?|issues?|ideas?|quer(?:y|ies)|appointment|trouble|dream|meeting|thoughts?|story|worr(?:y|ies)|doubts?"
        r"|theory|feeling|plans?|complaint|tip|offer) \w+"
        r"|\b(?:borrowed?|for (?:him|her|them|his|sale)|you|your|in (?:the|my) (?:car|van)|the (?:house|garden"
            r"|phone|shed) (?:is|was|looks|needs)|watch (?:the|a|it)|his|her"
        r"|park\w*|guess who|on my (?:phone|laptop|watch)|my (?:phone|laptop|car|bike|garden|watch|printer) (?:is|was"
        r"|won't|has|keeps|died|broke|screen))\b|" + _NOT,
        confidence=0.8),
)
TASTE = (
    family("preference", "preference", r"\b(?:can't|cannot|couldn't|can not) (?:stand|abide|bear|stomach|resist)"
        r" (?P<object>(?!it|that|this|how|when|him|her|them|you|the"
        r" thought)[a-z][a-z' -]+)", whom="own"),
    family("preference", "preference", r"^(?:I|we)(?:'m|'ve)? (?:\w+ )?(?:hate|loathe|detest|dislike|adore|love"
        r"|loved|like|enjoy|prefer|obsessed with|mad about|crazy about|addicted to"
        r"|hooked on|sick of|no patience for|not a fan of|never liked|a sucker for|into|big on|would sooner|'d"
        r" sooner|live for|swear by|(?:don't|do not) (?:like|care for|enjoy))"
        r" (?P<object>(?!it\b|that\b|this\b|to\b|how\b|when\b|you\b|him\b|her\b|them\b|the (?:idea|way|sound|fact"
        r"|thought)|what|being|your|a (?:drama|good)|these|those)[a-z].+)",
        refuse=r"^(?:I|we)(?:'m|'ve)? (?!really|also|do|still|just|mostly|always|actually|quite)\w+ like\b"
        r"|\b(?:you|your|would love|'d love|they|it's|it was)\b"),
    family("preference", "preference", r"\b(?P<object>[a-z]+(?: [a-z]+){0,3})(?:'s| is| are) (?:\w+ )?(?:my|our)"
        r" (?:\w+ )?(?:fave|favou?rite|thing|jam|weakness|guilty"
        r" pleasure|(?:\w+ )?personality|comfort food|only vice|vice|go-to|happy place|obsession)\b", whom="anyone"),
    family("preference", "preference", r"\b(?:he|she)(?:'s| is) (?P<object>(?:obsessed with|mad about|into|crazy"
        r" about) [a-z]+.*)", whom="anyone", confidence=0.75,
        refuse=r"\b(?:you|me|it|him|her|that)\b"),
)
# fmt: on

FAMILIES = (
    *RULES,
    *HEALTH,
    *ARRIVALS,
    *FAMILY,
    *WORK,
    *STUDY,
    *PLACES,
    *HABITS,
    *SKILLS,
    *PLANS,
    *OWNS,
    *EVENTS,
    *TASTE,
    *DATED,
)
