"""English fact patterns about what a person does: rules, habits, plans, events."""

from __future__ import annotations

from hippocampus.providers.local import patterns_en
from hippocampus.providers.local.patterns import english
from hippocampus.providers.local.patterns_en import DAYS, PLACE_NAMES, TIME

_WE_ARE = r"(?:I'm|I am|we're|we are)"
_PERIOD = (
    r"(?:morning|evening|afternoon|night|day|week|weekend|month|year|summer|winter|spring|fall|autumn"
    rf"|{DAYS})"
)
_NOT_HABIT = (
    r"(?:was|were|had|did|saw|met|got|used|went|could|would|can|might|may|should|want|need|must|will|love"
    r"|like|enjoy"
    r"|hate|think|feel|know|guess|hope|wish|am|[a-z]+ed)\b"
)
_WHEN = (
    r"(?:yesterday|today|last (?:night|week|weekend|month|year|summer|winter|spring|fall|autumn|[A-Z][a-z]+)"
    r"|this"
    r" (?:morning|afternoon|evening|week|weekend|month|year|past weekend)|(?:a few|a couple of|two|three|four"
    r"|five|six|\d+)"
    rf" (?:days|weeks|months|years) ago|a (?:week|month|year) ago|on {DAYS}|over the weekend|the other day"
    rf"|recently)"
)
#: What people remember of a year: journeys, beginnings, endings, successes, harm. Not errands, meals and outings.
_DID = (
    r"(?:(?:went|flew|travel(?:l)?ed|drove|went back|moved back|got back|came back|just got back) (?:to|from) (?:the"
    r" )?[A-Z]\w+"
    r"|went (?:to|on) (?:my|our|an?) [a-z' -]*(?:wedding|honeymoon|funeral|retreat|cruise|safari|conference"
    r"|graduation|reunion|pilgrimage|festival|holiday|vacation|trip"
    r"|camping trip|road trip)|took an? (?:[a-z]+ )?(?:trip|holiday|vacation|cruise|break) (?:to|in|around|through)"
    r"|visited (?:the )?[A-Z]"
    r"|joined|signed up for|won|published|adopted|graduated|passed (?:my|the|our|all)|failed (?:my|the)|submitted"
    r" (?:my|the|our)|enrolled"
    r"|performed (?:at|in)|exhibited|launched|opened (?:an?|my|our)|sold (?:the|my|our)|bought (?:an?|my|our|the)"
    r"|completed (?:my|the|an?)|finished (?:my|writing|the (?:\d|half|marathon|course|book|first))"
    r"|ran (?:an?|my|the) (?:[a-z-]+ )?(?:marathon|half[- ]marathon|10k|5k|race|ultra)|climbed (?:[A-Z]|mount)|hiked"
    r" (?:the )?[A-Z]|got (?:into (?:[A-Z]|the|med|law|uni)|accepted|hired|promoted|fired|laid off|my (?:licen[cs]e"
    r"|degree|diploma|black belt|results|braces|citizenship|visa|green card)|the (?:all[- ]clear|job|part|role|grant"
    r"|scholarship|keys)|an? (?:[a-z]+ )?(?:job offer|offer|award|tattoo"
    r"|scholarship|promotion|raise|diagnosis|grant|puppy|kitten))|broke (?:my|an?)|sprained|tore|fractured|injured"
    r"|had (?:an? |my |our )?(?:[a-z]+ )?(?:accident|surgery|operation|baby|miscarriage|heart attack|stroke|c-section"
    r"|transplant|wisdom teeth out|tonsils out|appendix out|hip replaced|knee replaced)|lost my (?:job|dad|mum|mom"
    r"|mother|father|wife|husband|[a-z]+ (?:dog|cat)|dog|cat)|quit (?:smoking|drinking|my|the)"
    r"|handed in my (?:notice|thesis|dissertation)|gave up|retired|moved in with|learned (?:how )?to|started (?:an?"
    r"|my|our) (?:[a-z-]+ ){0,2}(?:business|company|blog|podcast|course|degree|phd|band|garden|channel|job|family"
    r"|charity|book club|choir|diet|apprenticeship|internship|master's|shop|bakery|studio|farm)|volunteered (?:at|for"
    r"|with)|was (?:promoted|diagnosed|accepted|elected|awarded|hired|laid off|made redundant|fired))"
)
_TIMES = r"(?: (?:once|twice|(?:two|three|four|five|six|several|many|a few|\d+|lots of) times)(?! an?\b))?"
_INSTRUCT = (
    r"(?:book|schedule|call|text|email|e-mail|message|phone|ring|contact|send|suggest|recommend|remind|use"
    r"|write"
    r"|reply|answer|include|plan|order|add|put|set up|propose|offer|share|mention|address|speak|ping|disturb"
    r"|interrupt|invite|arrange|buy|cook|delete|post|charge|spend|round|translate|summari[sz]e|ask|quote)"
)
_ADDRESSED = (
    rf"{_INSTRUCT}|correct|answer|start|end|begin|finish|give|show|tell|explain|check|confirm|format|keep|make|speak"
    rf"|talk|refer|assume|cite|convert|double[- ]check|repeat|say|let me|mix"
    r"|serve|touch|put|bring|wake|leave|use|apologi[sz]e|lecture|shout|swear|joke|shorten|abbreviate|respond|avoid"
    r"|list|link|warn|note|spoil|ask"
)
_KNOWN_ING = (
    r"(?!thinking|feeling|doing|crying|laughing|singing along|waking|losing|talking|spending|noticing|asking|using"
    r"|saying|working (?!on|as|out|with|at|for)|running (?:late|out)|falling|sneezing|raining|snowing|screaming"
    r"|panicking|freaking|watching|reading about|looking|planning|learning|studying|living|buying|bringing|coming"
    r"|calling|sleeping|eating|drinking|cooking dinner|avoiding|wondering|having|being|getting|waiting|struggling"
    r"|dealing|wanting|meaning"
    r"|missing"
    r"|hearing|keeping|going|looking (?!into)|trying (?!out)|telling|putting|making|seeing|able|loving"
    r"|enjoying|focusing|hoping|needing"
    r"|noticing|caring|realizing)[a-z]+ing\b"
)

# Tables, read by row.
# fmt: off
RULES = (
    english("rule", "rule", rf"(?:please |also |and |so )*(?P<object>(?!I\b|I'm|I'll|we\b|my\b|it\b|he\b|she\b|they\b"
        rf"|there\b|{_PERIOD}).+? (?:from now on|from here on(?: out)?|in (?:the )?future|going forward"
        r"|(?:every|each) (?:single )?time|whenever we (?:talk|chat)|in all your (?:answers|replies|messages)|at all"
        r" times))$", "{object}", "rule", 0.9),
    english("rule", "rule", r"(?:please |also |and |so )*(?:from now on|from here on(?: out)?|in (?:the )?future"
        r"|going forward|henceforth|moving forward),? (?:please |just |can you |could you |I'd like you to |I want"
        r" you to )*"
        r"(?P<object>(?!I\b|I'm|I'll|I've|we\b|we're|my\b|it\b|he\b|she\b|they\b)[a-z].+)", "{object}", "rule", 0.9),
    english("rule", "rule", rf"(?:please |pls |also |and |so |just )*(?P<object>(?:always|never|don't (?:ever|you"
        rf" ever)) (?:ever )?(?!mind|worry|forget (?:that|how|to (?:smile|breathe))|give up|stop|been|seen|was|had"
        rf"|did|say never)(?:{_ADDRESSED})\b.+)",
        "{object}", "rule", 0.9),
    english("rule", "rule", r"(?:please |pls )+(?:just |also )?(?P<object>(?:don't|do not|stop|avoid|no longer|quit)"
        r" (?!worry|mind|hesitate|be |feel|think|get me|laugh|judge|hate|cry|go|leave|ask|tell me you)[a-z]+.+)",
        "{object}", "rule", 0.85),
    english("rule", "rule", r"(?:please |just |also |and |so )*(?P<object>(?:don't|do not|stop|avoid|quit) (?:call"
        r"|us(?:e|ing)|calling|writ(?:e|ing)|send(?:ing)?|suggest(?:ing)?|recommend(?:ing)?|answer(?:ing)?"
        r"|reply(?:ing)?|speak(?:ing)?|explain(?:ing)?"
        r"|giv(?:e|ing) me|repeat(?:ing)?|add(?:ing)?|includ(?:e|ing)|start(?:ing)?|end(?:ing)?|apologi[sz](?:e|ing)"
        r"|lectur(?:e|ing)|sugarcoat(?:ing)?|ask(?:ing)? me|remind(?:ing)?|mention(?:ing)?|address(?:ing)?)\b .*"
        r"(?:me|my|emojis?|answers?|repl(?:y|ies)|messages?|words?|essays?|lists?|bullet|jargon|slang|recipes?"
        r"|suggestions?|sentences?|with|in|questions?)\b.*)", "{object}", "rule", 0.85),
    english("rule", "rule", r"(?:please |just |also |and |so |can you |could you |try to )*(?P<object>(?:keep|make"
        r"|write|give|use|stick|limit|format|phrase) (?:(?:me|it|them|things|to) )?(?:all |the )?(?:(?:your|my|the)"
        r" )?(?:answers?|repl(?:y|ies)|responses?"
        r"|messages?|explanations?|summaries|metric|celsius|kilomet(?:er|re)s|grams|24[- ]hour|british|american|plain"
        r" english|simple (?:words|language|english)|short (?:answers|sentences)|bullet points|capitals|lower"
        r" ?case)\b.*)",
        "{object}", "rule", 0.85),
    english("rule", "rule", r"(?:please |just |also )*(?P<object>(?:keep (?:it|things)|answer|reply|respond|write"
        r"|talk|speak)(?: to me)? (?:short|brief|simple|concise|plain|plainly|briefly|formal|casual|informal|simply"
        r"|in (?:[a-z]+ )?(?:english|french|german|spanish"
        r"|italian|polish|chinese|portuguese|dutch|bullet points|short sentences|plain english|one (?:sentence|line"
        r"|paragraph)|(?:two|three|two or three|a few) sentences))\b.*)", "{object}", "rule", 0.8),
    english("rule", "rule", r"(?:please |just |also )*(?P<object>(?:call|address) me (?!back|later|tomorrow|when|if"
        r"|crazy|old|a |an |on |at |after|before|tonight|today|in )[\w .'-]+?)(?: from now on| instead)?$", "{object}",
        "rule", 0.85),
    english("rule", "rule", r"(?P<object>(?:(?:max(?:imum)?|at most|no more than|not more than) )?(?:one|two|three"
        r"|four|five|\d+|two or three|a few)(?: or (?:two|three|four|five|\d))? (?:sentences|lines|words|paragraphs"
        r"|bullet points)"
        r"(?: max(?:imum)?| at most| tops| or less| is enough)?)(?: please)?$", "answers of {object}", "rule", 0.8),
    english("rule", "rule", r"(?:and |but |also |so )?(?:absolutely |strictly |definitely |please,? |really"
        r" )+(?P<object>no (?!idea|way|problem|worries|thanks|thank|need|doubt|chance|rush|one|not|more)[a-z]+.*)",
        "{object}", "rule", 0.85),
    english("rule", "rule", r"(?:and |but |also |so )?(?P<object>no (?!idea|way|problem|worries|thanks|thank|need"
        r"|doubt|chance|rush|one|not|more rib)[a-z]+(?: [a-z]+){0,4}?),? (?:please|ever|at all|from now on|whatever"
        r" happens)\b.*", "{object}", "rule", 0.85),
    english("rule", "rule",
        rf"(?:please |and |from now on,? |remember:? |also,? )*(?P<object>(?:never|always|don't ever"
        rf"|do not|don't) (?:ever )?{_INSTRUCT}\b.+)", "{object}", "rule", 0.9),
    english("rule", "rule",
        r"(?P<object>(?:no|never any) [a-z -]*?(?:meetings?|calls?|emails?|appointments?|messages?"
        r"|flights?|notifications?|work)(?: [a-z]+)? (?:on|before|after|during|at) .+)", "{object}", "rule",
        0.9),
    english("rule", "rule", rf"(?P<object>(?:never|not) on (?:a )?{DAYS}.*)", "{object}", "rule", 0.8),
    english("rule", "rule",
        rf"(?:I'd like you to|I want you to|I need you to|you should|you must|make sure (?:that )?"
        rf"you|make sure to) (?P<object>(?:always|never|not) {_INSTRUCT}\b.+)", "{object}", "rule", 0.9),
    english("rule", "rule",
        r"I (?P<object>(?:never|don't|do not) (?:take|do|schedule|answer|accept|work|attend|book)"
        rf" (?:.* )?(?:on (?:a )?{DAYS}|on weekends|before|after|during)\b.*)", "{object}", "rule", 0.85),
)
ASKED = (
    english("rule", "rule", r"(?:might|may|can|could) I ask (?:that )?you (?:please )?(?:to )?(?P<object>(?:not to"
        r" )?(?:write|speak|talk|answer|reply|avoid|use|call|address|keep|stop|explain|be|always|never)\b.+)",
        "{object}", "rule", 0.85),
    english("rule", "rule", r"(?:and |but |also |so )?(?P<object>no (?!idea|way|problem|worries|thanks|thank|need"
        r"|doubt|chance|rush|one|not|more)[a-z]+(?: [a-z]+){0,4}?),? please\b.*", "{object}", "rule", 0.85),
    english("rule", "rule", r"(?:can|could|may|might|would) (?:you|I ask you to|I ask that you) (?:please"
        r" )?(?P<object>(?:always|never|not|stop|keep|only|from now on,?|in future,?)\b.+|.+ (?:from now on|in (?:the"
        r" )?future|every time|going forward))", "{object}", "rule", 0.8),
)
RELEASES = (
    english("rule", "rule",
        rf"(?P<object>{DAYS} (?:are|is) (?:fine|ok|okay|free|open|good|possible) (?:for|to have) [a-z ]+?(?:"
        rf" again" r"| now)?)$", "{object}", "rule", 0.85),
)
HABITS = (
    english("habit", "custom",
        rf"(?P<about>(?:every (?:single )?{_PERIOD}|on (?:{DAYS}|weekends|weekdays)|each {_PERIOD})),?"
        rf" (?:I|we) ~(?P<object>(?!{_NOT_HABIT}).+)", "{does} {about}", "action", 0.9),
    english("habit", "custom",
        rf"(?:I|we) ~(?P<object>(?!{_NOT_HABIT})[a-z]+(?: .+?)?) (?P<about>every (?:single )?(?:other"
        rf" )?{_PERIOD}"
        r"|(?:once|twice|three times|four times|\d times) an? (?:day|week|month|year)|on (?:Mon|Tues|Wednes"
        r"|Thurs|Fri" rf"|Satur|Sun)days|on weekends|each {_PERIOD})\b.*", "{does} {about}", "habit", 0.9),
    english("habit", "custom",
        rf"I ~(?P<about>usually|normally|often|typically|regularly) (?P<object>(?!{_NOT_HABIT}|have|get|find)"
        r"[a-z]+ .+)", "{about} {does}", "action", 0.75),
    english("habit", "custom",
        r"I ~(?P<object>(?:volunteer|teach|coach|tutor|mentor|perform|jog|meditate)\b(?: .+)?)", "{does}",
        "habit", 0.85),
    english("activity", "custom", rf"(?:I've|I have|we've|we have) ~been ~(?P<object>{_KNOWN_ING}.*)",
        "has been {object}", "event", 0.8),
    english("activity", "custom",
        rf"{_WE_ARE} ~(?P<object>(?:working on (?!my health|getting|my\b|some|it)|writing|reading|creating|building"
        rf"|designing|renovating"
        r"|raising|training|practi[cs]ing|hosting|volunteering|teaching|rewatching|growing|restoring"
        r"|composing|rehearsing)" r"\b .+)", "is {object}", "event", 0.8),
    english("activity", "custom", rf"(?:I|we|I've|we've) ~(?:started|began|took up|have taken up) (?P<object>(?:going"
        rf" to|hitting|doing) (?:[a-z-]+ ){0,4}(?:gym|class|classes|therapy|lessons|yoga|pilates"
        r"|church|meetings|club|training|pool|spin|crossfit)\b.*)", "started {object}", "event", 0.85),
    english("activity", "custom", rf"(?:I|we|I've|we've) ~(?:started|began|took up|have taken up)"
        rf" (?P<object>{_KNOWN_ING}.*)",
        "started {object}", "event", 0.85),
)
_NEAR = (
    r"(?:opening|starting (?!to )|launching|moving|changing|switching|leaving|getting married|getting engaged|having"
    r" (?:an?"
    r" (?:baby|operation|boy|girl)|surgery)|joining|buying|selling|retiring|renovating|adopting|flying|hosting"
    r"|running (?:the|an? [a-z-]*(?:marathon|10k|race|workshop))|walking the|cycling (?:from|to|the)|climbing|hiking"
    r" (?:the|up)|emigrating|going (?:on|back) |taking (?:the|my|our|an?) [a-z]* ?(?:exam|test|trip|course|kids"
    r"|sabbatical|gap)"
    r"|marrying|quitting|handing in|applying (?:for|to)|training for|saving (?:up )?for|giving (?:a|the|my) [a-z]*)"
)
_OCCASION = (
    r"(?:[\w'’-]+ ){0,3}?(?:flight|train|exams?|interview|appointment|surgery|operation|wedding|deadline|party|dinner"
    r"|trip|holiday|vacation|concert|gig|presentation|talk|move|due date|check-?up|visit|race|marathon|recital"
    r"|performance"
    r"|conference|graduation|ceremony|baptism|christening|funeral|match|game|audition|viva|defen[cs]e|test|moving day"
    r"|last day|first day|scan|procedure|reunion|anniversary|birthday|launch|opening|exhibition|meeting|leaving do"
    r"|retreat|camp|course|class|term|semester|rehearsal|open day|house ?warming|baby shower|hearing|start date|walk"
    r"|hike|ride|swim|tournament|competition)"
)
PLANS = (
    english("plan", "custom", r"(?:I|we|I've|we've|I have|we have) ~decided to (?P<object>.+)", "plans to {object}",
        "action", 0.8),
    english("plan", "custom", rf"(?:my|our|the) (?P<about>{_OCCASION})(?: (?:in|at|to|with|for|of) [\w' ]+?)? ?(?:'s"
        rf"|is|are|has been|was|got|gets|will be|has|starts|begins|has moved|is going to be|takes place)? ~(?:now"
        rf" )?(?:going to be |moved |set |booked "
        rf"|scheduled |planned |pushed back |brought forward |postponed |changed |rescheduled )?(?:to |for |is |be"
        rf" )?(?P<object>(?:(?:on|at|in|from|this|next) )?(?:the )?{TIME}\b.*)", "{about} is {object}",
        "occasion", 0.85),
    english("plan", "custom", rf"(?:I've|I have|we've|we have|I've ~got|I|we) ~(?:got |have |had )?(?:an?|my|our|the)"
        rf" (?P<about>{_OCCASION})(?: (?P<object>(?:(?:in|at|to|with|for|of) [\w' ]+? )?(?:\b(?:on|at|in|from)"
        rf" )?(?:the )?{TIME}\b.*))", "has {about} {object}", "occasion", 0.85),
    english("plan", "custom", r"(?:I|we|I've|we've|I have|we have) ~(?:booked|reserved|arranged|scheduled"
        r"|organi[sz]ed|got tickets (?:to|for)|have tickets (?:to|for)|bought tickets (?:to|for)|registered for"
        r"|entered|signed up for(?=.*\d)|enrolled (?:in|on|for)(?=.*\d))"
        r" (?P<object>.+)", "has booked {object}", "event", 0.85),
    english("plan", "custom", rf"{_WE_ARE} ~(?P<object>doing (?:the|an?|my|our) .+ {TIME}\b.*)", "is {object}",
        "event", 0.85),
    english("plan", "custom", rf"{_WE_ARE} ~(?P<object>{_NEAR}\b ?.+)", "is {object}", "event", 0.8),
    english("plan", "custom", rf"{_WE_ARE} ~(?:to|due to|set to|scheduled to|supposed to|meant to|about to)"
        rf" (?P<object>[a-z]+ .*{TIME}\b.*)", "is to {object}", "event", 0.85),
    english("plan", "custom", rf"(?:I|we) ~(?P<object>(?:fly|leave|start|move|sign|travel|return|arrive|land|finish"
        rf"|graduate|retire|begin|set off|head|depart|sit|take"
        rf"|have(?! (?:been|gone|had|done|seen)\b)|get|close|defend|compete|perform|play|race"
        rf"|present|speak|turn)\b.*"
        rf"(?:\b(?:on|at|in|from|this|next) )?{TIME}\b.*)", "will {object}", "event", 0.8),
    english("plan", "custom", rf"(?:I ~have|I've ~got|I have got|we have|we've got) (?P<object>an? .+ {TIME}\b.*)",
        "has {object}", "event", 0.8),
    english("plan", "custom", rf"(?:I've|I have|we've|we have) ~(?:got )?(?P<object>an? [a-z -]+ {TIME})\b.*",
        "has {object}", "event", 0.85),
    english("plan", "custom",
        rf"{_WE_ARE} ~(?:planning to|saving up to|preparing to|planning on going to"
        rf"|(?:hoping to|going to|gonna|about to|looking to|aiming to)(?=.* (?:{TIME}\b|[A-Z])(?<!soon)(?<!tonight)))"
        r" (?P<object>(?!an? |the |my |our |[A-Z]).+)",
        "plans to {object}", "action", 0.8),
    english("plan", "custom",
        rf"{_WE_ARE} ~(?:going|off|heading) to (?P<object>(?:an? |the |my |our |[A-Z]).*{TIME}\b.*)",
        "is going to {object}", "event", 0.85),
    english("plan", "custom",
        rf"{_WE_ARE} ~(?:planning|training for|preparing for|saving up for|organi[sz]ing) (?P<object>(?:an? "
        r"|the |our |my |[A-Z]).+)", "is preparing {object}", "event", 0.8),
    english("plan", "custom", r"(?:I|we) ~plan (?:to|on) (?P<object>.+)", "plans to {object}", "action",
        0.85),
    english("plan", "custom",
        rf"{_WE_ARE} ~(?P<object>(?!going to|gonna|doing|looking|hoping|trying|thinking)[a-z]+ing"
        rf" (?:.+ )?{TIME}\b.*)", "is {object}", "event", 0.85),
    english("plan", "custom",
        r"(?:I'll|we'll|I will|we will) ~(?P<object>(?!be |let|keep|see you|check|try|share|send"
        rf"|do |never|always|not |show|get back)[a-z]+ (?:.+ )?{TIME}\b.*)", "will {object}", "action", 0.8),
    english("goal", "custom",
        r"(?:my (?:dream|goal|aim) is|I ~want|I ~hope|it's (?:always )?been my dream) (?:one day )?to"
        r" (?P<object>(?:become|learn|start|open|travel|visit|move|buy|write|publish|adopt|study|run|get into"
        r"|own" r"|build|make it as|work as|go to|teach|act|record|finish|climb|sell) .+)",
        "wants to {object}", "action", 0.8),
)
EVENTS = (
    english("event", "custom", rf"(?:I've|I have|we've|we have) ~been to (?P<object>{PLACE_NAMES}{_TIMES})\b.*",
        "has been to {object}", "names", 0.85),
    english("event", "custom", rf"(?:I've|I have|we've|we have) ~(?P<about>visited|climbed|hiked|travell?ed to"
        rf"|backpacked (?:around|through)|sailed to|cycled (?:to|across|around)|walked|lived in|worked in"
        rf"|summit(?:t)?ed) (?P<object>{PLACE_NAMES}{_TIMES})(?! (?:for|since)\b).*", "has {about} {object}",
        "names", 0.85),
    english("event", "custom", r"(?:I've|I have|we've|we have) ~(?P<object>(?:run|finished|completed|done|walked"
        r"|cycled|ridden|swum|won|lost|published|written|recorded|climbed) (?:an?|the|my|our|one|two|three|four|five"
        r"|six|seven|eight|nine|ten|twelve|\d+|several|many|a few|a couple of|over \d+) (?:[A-Z]?[a-z0-9-]+ ){0,3}?"
        r"(?:marathons?|half[- ]?marathons?|triathlons?|ultras?|races?|10ks?|5ks?|parkruns|ironmans?|tournaments?"
        r"|championships?|books?|novels?|papers?|albums?|mountains?|munros?|peaks?)\b.*)", "has {object}",
        "event", 0.85),
    english("event", "custom", rf"(?P<about>{_WHEN}),? (?:I|we) ~(?P<object>{_DID} .+)", "{object} {about}",
        "event", 0.85),
    english("event", "custom", rf"(?:I|we|I've|we've|I have|we have) ~(?P<object>{_DID} .+)", "{object}",
        "event", 0.8),
)
# fmt: on

_EN = patterns_en
_PERSON = (*_EN.IDENTITY, *_EN.PLACES, *_EN.WORK, *_EN.STUDY, *_EN.FAMILY, *_EN.HEALTH)
PATTERNS = (*_PERSON, *RULES, *RELEASES, *_EN.TASTE, *_EN.SKILLS, *HABITS, *PLANS, *EVENTS)
MENTIONS = patterns_en.MENTIONS
NAMED_KIN = patterns_en.NAMED_KIN
