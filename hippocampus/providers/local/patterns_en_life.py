"""English fact patterns about what a person does: rules, habits, plans, events."""

from __future__ import annotations

from hippocampus.providers.local import patterns_en
from hippocampus.providers.local.patterns import english
from hippocampus.providers.local.patterns_en import DAYS

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
TIME = (
    rf"(?:(?:on |this |next |coming )*{DAYS}|tomorrow|tonight|(?:this|next|the coming) (?:week|weekend|month"
    rf"|year"
    r"|spring|summer|fall|autumn|winter|semester|quarter)|in (?:January|February|March|April|May|June|July"
    r"|August|September|October|November|December)|in (?:a|two|three|four|a few|\d+) (?:days?|weeks?|months?"
    r"|years?)"
    r"|later this (?:week|month|year)|soon|after graduation|for (?:Christmas|New Year|the holidays))"
)
_WHEN = (
    r"(?:yesterday|today|last (?:night|week|weekend|month|year|summer|winter|spring|fall|autumn|[A-Z][a-z]+)"
    r"|this"
    r" (?:morning|afternoon|evening|week|weekend|month|year|past weekend)|(?:a few|a couple of|two|three|four"
    r"|five|six|\d+)"
    rf" (?:days|weeks|months|years) ago|a (?:week|month|year) ago|on {DAYS}|over the weekend|the other day"
    rf"|recently)"
)
_DID = (
    r"(?:went (?:(?:up |out |over |down )?to|on|for (?:an?|my)|camping|hiking|swimming|skiing|surfing"
    r"|kayaking|fishing|biking|shopping|back to)|visited"
    r"|attended|joined|signed up for|finished|won|bought|painted|baked|wrote|published|performed|hosted"
    r"|organi[sz]ed"
    r"|ran|received|completed|adopted|graduated|passed|travel(?:l)?ed to|flew to|submitted|recorded|planted"
    r"|built"
    r"|sprained|injured|broke|volunteered|celebrated|launched|opened|sold|hiked|climbed|learned (?:how )?to"
    r"|applied (?:to|for)|decided to|agreed to|got back from|cooked|taught|drew|designed|created|participated"
    r" in"
    r"|took part in|explored|ordered|planned|got (?:into|accepted|hired|promoted|a new|an? (?:[a-z]+ )?(?:job"
    r"|offer|award|tattoo|scholarship|puppy|kitten|dog|cat"
    r"|raise|letter))|made (?:an?|some|my)|took (?:an?|my|the (?:kids|dog|family))|gave (?:an?|my)|saw (?:an?"
    r"|the)"
    r"|met (?:an?|my|some|with)|tried (?:an?|some|out|my|[a-z]+ing)|lost my|had (?:an? (?:[a-z]+ )?(?:time"
    r" (?:at|in|with)|accident|interview|surgery"
    r"|check-?up|audition|party|picnic|gig|show|meeting|appointment)|my first)|contacted|quit|spent|started"
    r" (?:an?|my)|set up (?:an?|my)"
    r"|read|watched)"
)
_INSTRUCT = (
    r"(?:book|schedule|call|text|email|e-mail|message|phone|ring|contact|send|suggest|recommend|remind|use"
    r"|write"
    r"|reply|answer|include|plan|order|add|put|set up|propose|offer|share|mention|address|speak|ping|disturb"
    r"|interrupt|invite|arrange|buy|cook|delete|post|charge|spend|round|translate|summari[sz]e|ask|quote)"
)
_KNOWN_ING = (
    r"(?!thinking|feeling|doing|wondering|having|being|getting|waiting|struggling|dealing|wanting|meaning"
    r"|missing"
    r"|hearing|keeping|going|looking (?!into)|trying (?!out)|telling|putting|making|seeing|able|loving"
    r"|enjoying|focusing|hoping|needing"
    r"|noticing|caring|realizing)[a-z]+ing\b"
)

# Tables, read by row.
# fmt: off
RULES = (
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
        rf"{_WE_ARE} ~(?P<object>(?:working on|writing|reading|creating|building|designing|renovating"
        r"|raising|training|practi[cs]ing|hosting|volunteering|teaching|rewatching|growing|restoring"
        r"|composing|rehearsing)" r"\b .+)", "is {object}", "event", 0.8),
    english("activity", "custom", rf"(?:I|we|I've|we've) ~started (?P<object>{_KNOWN_ING}.*)",
        "started {object}", "event", 0.85),
)
PLANS = (
    english("plan", "custom", rf"(?:I've|I have|we've|we have) ~(?:got )?(?P<object>an? [a-z -]+ {TIME})\b.*",
        "has {object}", "event", 0.85),
    english("plan", "custom",
        rf"{_WE_ARE} ~(?:planning to|hoping to|going to|gonna|about to|looking to|aiming to|saving"
        r" up to|preparing to|planning on going to) (?P<object>(?!an? |the |my |our |[A-Z]).+)",
        "plans to {object}", "action", 0.8),
    english("plan", "custom",
        rf"{_WE_ARE} ~(?:going|off|heading) to (?P<object>(?:an? |the |my |our |[A-Z]).*{TIME}\b.*)",
        "is going to {object}", "event", 0.85),
    english("plan", "custom", rf"{_WE_ARE} ~(?:thinking (?:of|about)|planning on|considering|looking into)"
        rf" (?P<object>[a-z]+ing\b.+)", "is thinking about {object}", "action", 0.8),
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
