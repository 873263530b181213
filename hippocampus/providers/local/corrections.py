"""Corrections: what a sentence takes back, moves to another time, or puts right, among the facts that hold.

    'scratch what I said about the trip, we moved it to 21 June'    the trip has another date
    'the trip is off', '那个旅行取消了'                              the trip ends
    'Actually I'm not, it was a mistake'                            what was stated last ends
    'Thursday, not Friday'; '不是周五，是周四'                       one word of what was stated is another one

A correction never states by itself what a fact is about: it finds a fact that shares a word with it, or, if it speaks
of 'it', the last one. Without such a fact it is no correction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hippocampus.providers.local import patterns_en, patterns_zh
from hippocampus.text import words
from hippocampus.text.times import MONTHS, number_of

_TAKEN_BACK_EN = re.compile(
    r"\b(?:scratch (?:that|what I said|the)|never ?mind (?:that|what I said|about)|forget (?:that\b|what I said|what"
    r" I told)"
    r"|(?:I )?take that back|disregard|ignore (?:that|what I said)|(?:it|that|this|which) (?:was|is) (?:all )?(?:just"
    r" )?(?:an? |my )?(?:mistake(?! (?:to|of)\b)|wrong"
    r"|false alarm|misdiagnosis|misunderstanding|mix-up|typo|error)|was (?:a )?(?:misdiagnosis|misdiagnosed|false"
    r" alarm|mistaken)|I was (?:wrong|mistaken)"
    r"|I (?:misspoke|misread|mistyped|misremembered)|I (?:got|had) (?:that|it|this|the \w+) wrong|mixed (?:that|it"
    r"|them|this|the \w+)? ?up|false alarm"
    r"|(?:no longer|not) (?:true|the case)|doesn't apply (?:any ?more|now)|no need (?:for that|to do that) any ?more"
    r"|you can (?:stop|drop|forget) (?:that|the)"
    r"|turns out (?:I'm|I am|it's|it is|it was|I was|I) (?:not|never|don't|didn't))\b",
    re.IGNORECASE,
)
_SAID_ABOUT_EN = re.compile(
    r"\b(?:said|told you|mentioned|wrote|thing|stuff) about (?:the |my |our )?(?P<what>.+?)(?:,|;|\bbtw\b|$)",
    re.IGNORECASE,
)
_OFF_EN = re.compile(
    r"\b(?:cancell?ed|cancell?ing|(?:snowed|rained|washed) (?:out|off)|didn't play|call(?:ed|ing)? (?:it )?off|"
    r"(?:is|'s|are|was) (?:now )?off(?= |$|[.,!])(?! to\b|"
    r" on\b| work\b| school\b)|not happening|isn't happening|fell through"
    r"|fallen through|(?:I'm|we're) not going (?:any ?more|after all|to \w+ any ?more)|dropped out|backed out|pulled"
    r" out|scrapped|shelved|gave up on|given up on|had to give up"
    r"|decided (?:not to|against)|never (?:even )?(?:happened|got (?:to|there|off the ground|round to)|made it"
    r" to|came off|went"
    r" (?:ahead|to))|didn't (?:happen|come off|go ahead|work out|make it to)|came to nothing|called a halt to"
    r"|bailed on"
    r"|had to (?:cancel|scrap|drop|skip|miss|call off)|out of the question|won't (?:be able to make|make|happen"
    r"|work out)|(?:'s| is) out(?= |$|[.,!])(?! (?:of"
    r"|for (?:me|us|lunch|dinner|a)|and about|now|there|in|on|by|to))|isn't going to happen|no longer"
    r" going|not (?:doing|running|getting|moving|taking) .*\b(?:any ?more|after all))\b",
    re.IGNORECASE,
)
_MOVED_EN = re.compile(
    r"\b(?:mov(?:ed?|ing)|postpon\w+|push(?:ed|ing)?|brought forward|reschedul\w+|delay\w+|shift\w+|chang\w+|bump\w+"
    r"|put back|switched|swapped|rebook\w+|slipp?(?:ed|s|ing)?(?= (?:to|till|until|by|a)\b)|slid(?= to)|put off"
    r"|brought (?:it )?forward"
    r"|instead|actually|scratch|correction|I mean"
    r"|I meant|I said|hold (?:on|up)|pardon me|my (?:mistake|bad)|I stand corrected|no wait|wait,? no|make "
    r"(?:that|it) (?=the |on |for |[A-Z])|(?:put|say|call it)(?: it)?(?: down)? (?:for |on )?(?=the \w+th\b)|not"
    r" the \d|got the date wrong|wrong date|in the end|turns out|it'?s going"
    r" to be|will be|it's now|is now|it's (?:the |on )?[^,.]{2,25} now|(?:not|isn't|is not|no longer) (?:in |on "
    r")?[^,.]{2,25} any ?more|has been|deferred)\b",
    re.IGNORECASE,
)
_ENDED_EN = re.compile(
    r"^(?:(?:I|we|I've|we've|I have|we have) )?(?:just |also |finally |had to |now |since |already |recently"
    r" )*(?:left|dumped|(?:stood|stepped) down (?:as|from)|not(?: an?)?(?= [a-z -]{3,30} any ?more)"
    r"|ditched|packed in|cut out|stopped (?:being|doing|going to|eating|drinking|taking)|taken off|came off"
    r"|quit|drop|give up|sell|resign(?:ed)? from|sold|g[ai]ven? up|gave away|dropped|stopped|lost|broke up with|got"
    r" rid of|retired from"
    r"|dropped out of|no longer (?:have|work at|work for|work as|own|play|do|go to|need|live in|eat|drink|like)|don't"
    r" (?:have|work at|work for|own|play|do|go to|need|live in) (?=.*any ?more)"
    r"|(?<!\w)(?:am|'m|are|'re) (?:no longer|not (?=.*any ?more))|switched (?:over )?from"
    r"|changed (?:over )?from|moved out of|moved away from|handed in my notice at|finished"
    r" with|(?:gave|given|put in|handed in) (?:my |our )?notice (?:at|to|with)|split up with|separated from"
    r"|cancelled|canceled|let go of) (?P<what>.+)",
    re.IGNORECASE,
)
#: Somebody's move to another place, not that of a date: a plan of it has come about.
_RELOCATED_EN = re.compile(
    r"\b(?:I|we)(?:'ve| have)? (?:just |finally |already |recently )?moved"
    rf"(?: (?:last |yesterday|on {patterns_en.DAYS})"
    r"| in(?=$|[.,!]| on | last | yesterday| today| at the weekend)"
    r"| in(?:to)? (?:our|my|the) (?:[a-z]+ )?(?:house|flat|home|place|apartment)\b"
    rf"| (?:out|house|home|flat|back|here|over|to|from)\b(?! tears\b)"
    rf"(?! {patterns_en.DAYS}|(?: the)? \d| {patterns_en.MONTH}\b| (?:next|this|an?) ))",
    re.IGNORECASE,
)
#: What was bought is for somebody else.
_GIFT_EN = re.compile(
    r"^(?:it|that|they)(?:'s| is| was|'re| are| were) (?:actually |really |meant (?:as|to be) )?"
    r"(?:not for me(?=[.,!]|$)|(?:an? )?(?:[a-z]+ )?(?:gifts?|presents?|surprise) for (?:my|our|(?-i:[A-Z])))",
    re.IGNORECASE,
)
_RELOCATING_EN = re.compile(
    rf"\b(?:I'm|we're|I am|we are|I'll be|we'll be) moving (?!it\b|to {patterns_en.DAYS}|to the \d)", re.IGNORECASE
)
_RELOCATED_ZH = re.compile(
    "(?<!没)(?<!不)搬(?:家|到|来|去|进|过来|过去)[^，。改推挪延提]{0,8}了|已经搬|搬完|搬好"
    "|[前昨上][^，。]{0,6}搬[到来进]"
)
_RELOCATION = re.compile(r"\b(?:mov(?:e|es|ing)|relocat\w+)\b|搬", re.IGNORECASE)
#: A plan to move to another place, not to move something there.
_MOVE_PLANNED = re.compile(
    r"\b(?:mov(?:e|es|ing)|relocat(?:e|es|ing))"
    r"(?: (?:house|home|flat|out|in|away|back|over|abroad)\b| (?:in)?to\b| (?:in|on|next|this)\b|$)|搬",
    re.IGNORECASE,
)
#: What somebody no longer does, though they would like to.
_MISSED_EN = re.compile(
    r"^(?:I|we) (?:(?:really|already|still|do|so) )*miss (?P<what>(?:[a-z]+ )?[a-z]{2,}ing)"
    r"(?= ?(?:$|[.,!])| these days| so much)(?!.*\b(?:when|if|today|tonight|tomorrow|this week)\b)",
    re.IGNORECASE,
)
_WORKPLACE_EN = re.compile(
    r"\b(?:jobs?|work|position|notice|firm|company|office|place|boss|shop|store|school|hospital|agency|factory"
    r"|bank|bakery"
    r"|restaurant|caf[eé]|pub|bar|garage|salon|studio|clinic|surgery|practice|warehouse|buses|force|army|navy)\b",
    re.IGNORECASE,
)
#: Ends any rule that it shares a word with, or the only one.
_RULE_OFF_EN = re.compile(
    r"\b(?:scrap|drop|forget|ditch|lift|cancel|lose|undo|never ?mind|retire|bin|remove|delete|stop) (?:about )?"
    r"(?:the|that|my|this"
    r"|your) (?P<what>[\w' -]{0,40}?)(?: ?rule| thing| ban| instruction| request| reminder| format| style)\b",
    re.IGNORECASE,
)
_BACK_ON_EN = re.compile(r"\bback (?:on|to|on to) (?:eating |drinking |the )*(?P<what>[a-z]+)", re.IGNORECASE)
_WELL_EN = re.compile(
    r"\b(?P<what>[a-z]+)(?:'s| is| are|'re) (?:all |now |completely |totally )*(?:fine|better|gone|healed|mended|cured"
    r"|as good as new|good as new|sorted|fixed|cleared up"
    r"|back to normal)\b|\b(?:recovered from|over|got rid of|beat) (?:my|the) (?P<over>[a-z]+)",
    re.IGNORECASE,
)
_AFTER_ALL_EN = re.compile(r"\b(?:not|isn't|aren't|won't|n't|never)\b.*\bafter all\b", re.IGNORECASE)
_AWAY_EN = re.compile(
    r"^(?:I|we)(?:'ve)? (?:had to )?(?:gave|give|given) (?P<what>.+?) (?:away|back|up)\b", re.IGNORECASE
)
_OPENING_EN = re.compile(r"^(?:(?:so|also|and|but|oh|well|btw|by the way|actually|anyway),? )+", re.IGNORECASE)
_NOTHING_EN = re.compile(
    r"^(?:actually|no|wait|sorry|hmm|well|oh|but|and|,|\s)*(?:I'm not|I am not|I don't|I do not|I didn't|I haven't|I"
    r" can't|it isn't|it's not|that's not (?:true|right|it)|that isn't (?:true|right)|not any ?more|I'm not any ?more"
    r"|I don't any ?more)(?: (?:any ?more|after all|really|actually))*$",
    re.IGNORECASE,
)
_INSTEAD_EN = (
    re.compile(
        r"\bI (?:said|wrote|told you)(?: it was| it's)? (?:on |in |at |the"
        r" )?(?P<old>[A-Z0-9][\w'-]*)(?: (?:earlier|before|yesterday|last time))?"
        r"[,;—–-]? ?(?:but |and )?(?:I meant|(?:it|that|she|he)(?:'s| is| was| should be)|we're"
        r"|I'm)(?: actually| really| in fact)?"
        r" (?:on |in |at |the )?(?P<new>[A-Z0-9][\w'-]*)(?=$|[.,!])"
    ),
    re.compile(
        r"\b(?!(?:It|That|This|He|She|We|They|I|No|Sorry|Actually|The)\b)(?P<new>[A-Z0-9][\w'-]*(?: [A-Z0-9][\w'-]*)?)"
        r",? not (?:on |in |at |the )?(?P<old>[A-Z0-9][\w'-]*)\b"
    ),
    re.compile(
        r"\bnot (?:on |in |at |the )?(?P<old>[A-Z0-9][\w'-]*)[,;]? (?:but|it's|it is|I meant) (?:on |in |at |the"
        r" )?(?P<new>[A-Z0-9][\w'-]*)\b"
    ),
    re.compile(
        r"\binstead of (?:on |in |at |the )?(?P<old>[A-Z0-9][\w'-]*)[,]? (?:it's |on )?(?P<new>[A-Z0-9][\w'-]*)\b"
    ),
)
_SAID_ZH = re.compile(
    "(?:刚才|之前|上次|前面)?我?(?:刚才|之前|上次|前面)?说(?:的)?(?:是"
    "|在)?(?P<old>[\\u4e00-\\u9fff]{1,8}?)[，,](?:但|不过)?(?:其实|应该|实际上?)(?:是|在)"
    "(?P<new>[\\u4e00-\\u9fff\\w]{1,8}?)(?=[，。！,!]|$|吧|啊|哈|才对)"
)
_RENAMED_EN = re.compile(
    r"^(?:(?:he|she|it)(?:'s| is)|(?:his|her|its) name(?:'s| is)|we(?:'ve)? (?:named|called|renamed) (?:him|her|it))"
    r" (?:now )?(?:called |named )?(?P<new>[a-z][\w'-]+)(?: (?:now|instead))?$",
    re.IGNORECASE,
)
_AGAIN_EN = re.compile(r"\b(?:wait|no|changed|actually|instead|now|renamed|not)\b", re.IGNORECASE)

_TAKEN_BACK_ZH = re.compile(
    "(?:弄|搞|记|说|写|看|听|打)(?:错|反|混|岔)了?|误诊|误会|搞乌龙|乌龙|当我没说|收回|不作数|别当真|没这回事"
    "|没那回事|不算数|并不|其实(?:我)?(?:不|没)|原来(?:我)?(?:不|没)|不是真的"
)
_OFF_ZH = re.compile(
    "从[^，。]{1,10}(?:出来|离职|辞职|离开)了|取消|不去了|去不成|去不了了|不办了|办不成|没办成|不搬了|不考了|不学了"
    "|不养了|不做了|不干了|不开了|不上了|不打了|不参加了|泡汤|黄了|没[考办去搬开买回走学成领]成|后来没去|没去了"
    "|作罢|算了(?!一下)|告吹|吹了|搁置|没戏了|没去成"
    "|散伙|拆伙|散了伙|闹掰|退股|退了|退出了?|辞了|退掉|不用了|不用再|分手|分了|卖了|卖掉|送人了"
    "|停了|停掉|作废|不[再想]?[去办搬考学养做干开上打参吃喝送跑教过当来练][^，。]{0,6}了(?=[，,。！!]|$)|改主意"
)
#: 'The New Year was not gone home for': what was meant to be done, and was not.
_UNDONE_ZH = re.compile("(?P<what>[\u4e00-\u9fff]{0,4})没(?P<verb>[回去搬考办买开走学领飞见请带])成")
_WORK_TOPICS = frozenset(
    ("employer", "occupation", "business", "new_job", "field_of_work", "work_terms", "employment", "work_change")
)
_LEFT_WORK_ZH = re.compile(
    f"不(?:再)?(?:当|做|干){patterns_zh.JOB}了|(?<![没不想要])辞(?:职|工)?了|离职了|(?<!差点)(?<!险些)(?:被|给)裁了?"
    f"|[^，。]{{0,6}}不干了(?=[，,。！!]|$)|(?:公司|店|厂|饭店|茶楼"
    "|酒楼)[^，。]{0,6}(?:倒闭|关门|关张|黄了|没了)|(?:没有?|丢)了工作"
)
#: Takes back the turn before, or what it names.
_SCRATCHED_EN = re.compile(r"\b(?:scratch|never ?mind|forget) (?:that|it)\b", re.IGNORECASE)
_JOINED_EN = re.compile(
    r"\b(?:signed up|enrolled|joined|entered|registered|booked|applied|started|going)\b", re.IGNORECASE
)
_GIVEN_UP_EN = re.compile(
    r"\b(?:(?:gave|given) (?:it |that )?up|(?:we|I) (?:didn't (?:end up going|go|make it)|never"
    r" (?:went|made it))(?=$|[.,!])"
    r"|quit|stopped|not any ?more|no longer|never (?:was|did)|cancelled|fell"
    r" through)\b",
    re.IGNORECASE,
)
_GIVEN_UP_ZH = re.compile("放弃了?|不[^，。]{0,3}了(?=[，,。！!]|$)|黄了|没戏|停了|取消了|退了")
#: Told by their kind alone: '社团不去了'.
_KIND_ZH = re.compile("(?P<kind>社团|俱乐部|[课班团队]|健身房|兴趣班)(?:我|也|都)?(?:不去|不上|退|停)了?")
_CALLED_ZH = re.compile("叫[^，]{1,4}$")
_WELL_ZH = re.compile("(?:不(?:再)?过敏|没了|好了|痊愈|康复|治好|消失|没事)了?(?=[，,。！!]|$)")
#: A relative or an animal is well again.
_KIN_WELL_ZH = re.compile(
    "(?P<kin>妈|爸|爷|奶|外婆|外公|姥姥|姥爷|老婆|媳妇|老公|儿子|女儿|孩子|哥|姐|弟|妹|公公|婆婆|岳父"
    "|岳母|猫|狗)[^，。]{0,4}"
    "(?:好了|出院了?|康复了?|痊愈了?|没事了|好多了)"
)
_KIN_WELL_EN = re.compile(
    r"\b(?P<kin>mum|mom|dad|mother|father|husband|wife|son|daughter|sister|brother|gran|nan|dog|cat)(?:'s| is"
    r"| has)? (?:been )?(?:all |much |now |back )*"
    r"(?:better|fine|well again|recovered|out of hospital|home from (?:the )?hospital|discharged|on the mend)\b",
    re.IGNORECASE,
)
_ILL = re.compile(
    r"\b(?:hospital|ill|sick|surgery|operation|broke|fell|pneumonia|stroke|poorly)\b|住院|病|炎|手术|摔|骨折|发烧|癌",
    re.IGNORECASE,
)
_MOVED_ZH = re.compile(
    "改(?:到|成|为|在|期|签|约|定)|挪(?:到|在|至)|推(?:迟|后)(?:到|至)?|延(?:到|期|后|至)|提前(?:到|至)?|换(?:到|成)"
    "|不对|[记说看弄搞讲写打听]错|变动|变更|变成|只能|应该是|更正|重新定|调整"
)
_INSTEAD_ZH = re.compile(
    "不是(?P<old>[\\u4e00-\\u9fff\\w]{1,8}?)(?:[，,]|而)?是(?P<new>[\\u4e00-\\u9fff\\w]{1,8}?)(?=[，。！,!]|$|吧|啊"
    "|哈|才对)"
)
_NOT_ZH = re.compile(
    "(?:^|[，,。])(?:应该|其实|准确说)?(?:是|在)(?P<new>[\\u4e00-\\u9fff\\w]{1,8}?)[，,]而?不(?:是|在)"
    "(?P<old>[\\u4e00-\\u9fff\\w]{1,8}?)(?=$|[，。！,!]|吧|啊|哈|了)"
)
_MISTAKEN_EN = re.compile(
    r"^(?:oh,? |ah,? |no,? |ha\.? |well,? |actually,? )*(?:wait(?:,? no)?|hold (?:up|on)|scratch that|correction"
    r"|pardon me|my"
    r" (?:mistake|bad)|oops|whoops|I meant?|no,? sorry|I stand corrected|not [a-z]+ [a-z]+\.)\b[,.:!\s]*",
    re.IGNORECASE,
)
_MISTAKEN_ZH = re.compile("(?:说|讲|写|打|记|搞|弄)(?:错|岔|反|混)了?[，,。]?|^(?:不对|等等|更正)[，,]")
_CLOCK_EN = r"(?: at \d{1,2}(?::\d\d)?(?: ?[ap]m)?| at noon)?"
_TIME_EN = re.compile(
    rf"(?:\b(?:on|at|in|by|from|for) )?(?:{patterns_en.TIME.replace('[A-Z]', '(?-i:[A-Z])')}"
    rf"|\b{patterns_en.DAYS}){_CLOCK_EN}(?=\W|$)",
    re.IGNORECASE,
)
#: A day by its weekday, its date, or both.
_DAY_EN = re.compile(
    rf"\b(?:{patterns_en.DAYS},? (?:the )?)?{patterns_en.DATE}(?:,? {patterns_en.DAYS})?|\b{patterns_en.DAYS}",
    re.IGNORECASE,
)
_MONTH_EN = re.compile(rf"\b{patterns_en.MONTH}\b", re.IGNORECASE)
#: Where a day lies that takes the place of another.
_LATER = re.compile(r"\b(?:back|postponed|delayed|put off|later|deferred)\b|推|延|晚", re.IGNORECASE)
_EARLIER = re.compile(r"\b(?:forward|earlier|sooner)\b|提前|早", re.IGNORECASE)
_BARE_DAY_EN = re.compile(r"^(?:on |by |from )?(?:the )?(?P<day>\d{1,2}(?:st|nd|rd|th))$", re.IGNORECASE)
_BARE_MONTH_EN = re.compile(rf"\b(?:be|to|in|is|until) (?P<month>{patterns_en.MONTH})\b")
_TIME_ZH = re.compile(patterns_zh.TIME)
_NUMBERED_DAY_ZH = re.compile(
    "(?P<month>[一二三四五六七八九十]{1,2}|\\d{1,2})月(?P<day>[一二三四五六七八九十]{1,3}|\\d{1,2})[号日]"
)
_MONTH_ZH = re.compile("[一二三四五六七八九十\\d]月")
_BARE_DAY_ZH = re.compile("^[一二三四五六七八九十廿\\d]{1,3}[号日]$")
_UNDATED = frozenset(
    words.listed("home name age origin allergy birthday rule occupation employer preference diet health medication")
)
_DATED = frozenset(("plan", "event", "goal", "activity", "relationship_status"))
#: What somebody does regularly: an end of it ends every fact about it.
_PURSUITS = frozenset(("habit", "activity", "studies", "plays", "member", "preference"))
_IT_EN = re.compile(r"\b(?:it|that|they|them|the date|the day)\b", re.IGNORECASE)
#: What is about the same, though no word is shared.
_KINDRED = tuple(
    frozenset(words.listed(line))
    for line in (
        "wedding marry married marrying engaged 婚礼 结婚 婚宴 办酒 酒席 领证 婚期",
        "fly flying flight plane airport trip travel travelling holiday vacation 飞 机票 航班 旅行 旅游 出发 走 行程",
        "move moving moved relocate house flat 搬 搬家",
        "operation surgery operated hip knee cataract procedure consultant 手术 住院 开刀",
        "walk hike climb peaks trek 爬山 徒步",
        "christening baptism godmother godfather",
        "marathon half 10k race 马拉松",
        "booze alcohol drink drinking drinks pint beer wine sober 酒",
        "gig concert show performance play 演出 比赛",
        "job work notice employer 工作 上班 公司 单位",
        "allergy allergic rash reaction 过敏 皮试 过敏原",
        "comment comments 注释",
        "milk dairy cheese yoghurt yogurt butter cream lactose cmpa 牛奶 奶粉 乳糖",
        "party housewarming 聚会",
        "meeting meetings standup 会议 组会 例会 班会 开会 周会 早会",
        "guitar 吉他",
        "vegan vegetarian veggie meat fish 吃素",
        "exam test exams 考试 四级 考",
    )
)
_COMMON = (
    frozenset(
        words.listed(
            "one two three four five six seven eight nine ten said told what thing things plan plans date day week"
            " month year time now still actually instead make"
            " made said tell new old first last had have has back"
        )
    )
    | words.CHATTER
)


@dataclass(slots=True)
class Held:
    """A fact that a speaker's words may correct; the latest has the highest `order`."""

    fact_type: str
    key: str
    text: str
    topic: str
    order: int
    turn: int | None  # the number of the turn that stated it; None: stated before this slice

    @property
    def about(self) -> frozenset[str]:
        """The words that say what it is about."""
        return content(f"{self.key.replace('_', ' ').replace(':', ' ')} {self.text}")


@dataclass(frozen=True, slots=True)
class Correction:
    """What becomes of a held fact: another text, or its end if `text` is None.

    Attributes:
        unsaid: topics of facts that the sentence only seems to state.
    """

    held: Held
    text: str | None
    unsaid: frozenset[str] = frozenset()


_KINDRED_SPOKEN = tuple(
    re.compile(
        "|".join(sorted((rf"\b{word}\b" if word.isascii() else word for word in group), key=len, reverse=True)),
        re.IGNORECASE,
    )
    for group in _KINDRED
)


@lru_cache(maxsize=8_192)
def content(text: str) -> frozenset[str]:
    """Return the words of a text that say what it is about, with words that mean the same."""
    found = {term for term in words.terms(text) if term not in _COMMON}
    found.update(f"={number}" for number, spoken in enumerate(_KINDRED_SPOKEN) if spoken.search(text))
    return frozenset(found)


def find_time(text: str, *, chinese: bool) -> str | None:
    """Return the last day or time that a text names."""
    if chinese:
        found = _TIME_ZH.findall(text)
        return found[-1] if found else None
    times = [match[0] for match in _TIME_EN.finditer(text)]
    if times:
        return times[-1].strip()
    bare = _BARE_MONTH_EN.search(text)
    return f"in {bare['month']}" if bare else None


def puts_right(text: str, *, chinese: bool) -> re.Match[str] | None:
    """Return the words with which a speaker puts right what they just said: 'wait no', '说错了'."""
    return _MISTAKEN_ZH.search(text) if chinese else _MISTAKEN_EN.match(text)


def of_sentence(
    text: str, held: Sequence[Held], turn: int, *, chinese: bool, states: bool, asked: str = ""
) -> list[Correction]:
    """Return what a sentence corrects of what its speaker stated before.

    Args:
        held: the facts of the speaker that hold.
        turn: the sentence's turn.
        states: the sentence states a fact by itself.
        asked: the question that the sentence answers: 'How is the diet going?' 'I gave up.'
    """
    if not held:
        return []
    text = " ".join(text.replace("’", "'").split())
    find = _chinese if chinese else _english
    found = find(text, held, turn, states)
    if found or not asked or not (_GIVEN_UP_ZH if chinese else _GIVEN_UP_EN).search(text):
        return found
    meant = [each for each in held if each.topic not in ("name", "home", "origin", "allergy", "event")]
    target = _target(meant, asked, turn, speaks_of_it=False)
    return [Correction(target, None)] if target else []


def _english(text: str, held: Sequence[Held], turn: int, states: bool) -> list[Correction]:
    if (meant := _SAID_ABOUT_EN.search(text)) and (about := _overlapping(held, meant["what"])):
        held = about
    for pattern in _INSTEAD_EN:
        if (match := pattern.search(text)) and (found := _containing(held, match["old"])):
            return [Correction(found, _with_word(found.text, text, match))]
    if match := _RULE_OFF_EN.search(text):
        rules = [each for each in held if each.topic == "rule"]
        if ending_rules := _overlapping(rules, match["what"]) or (rules if len(rules) == 1 else []):
            return [Correction(each, None) for each in ending_rules]
    plain = text.strip(" .!?…")
    said = _OPENING_EN.sub("", plain)
    if match := _AWAY_EN.match(said) or _ENDED_EN.match(said):
        what = re.split(r"\b(?:because|since|to|for|after|and|so|but|when|where|last|this|in)\b|,", match["what"])[0]
        ending = [each for each in _overlapping(held, what) if each.topic not in ("event", "name", "allergy")]
        if _WORKPLACE_EN.search(what) and not re.search(r"\b(?:home|house|flat)\b", what):
            ending += [each for each in held if each.topic in ("employer", "occupation") and each not in ending]
        if ending:
            return [
                Correction(each, None)
                for each in ending
                if each.topic not in ("plan", "goal") or re.search(r"cancel|drop|g[ai]ve", text)
            ]
    if over := _over_en(said, held, turn):
        return [Correction(each, None) for each in over]
    moved = None if _RELOCATED_EN.search(text) else _MOVED_EN.search(text)
    after = _TIME_EN.search(text, moved.end()) if moved else None
    time = after[0].strip() if after else find_time(text, chinese=False)
    if time and moved:
        relocating = _RELOCATING_EN.search(text) is not None
        dated = [each for each in held if not relocating or _RELOCATION.search(each.text)]
        dated = [each for each in dated if find_time(each.text, chinese=False)]
        dated = [each for each in dated if each.topic in _DATED] or [
            each for each in dated if each.topic not in _UNDATED and _overlapping([each], text)
        ]
        target = _target(dated, text, turn, speaks_of_it=bool(_IT_EN.search(text)) or not states)
        bare = not content(_IT_MOVED_EN.sub("", _TIME_EN.sub(" ", text)))
        if target and not (states and not bare and not _overlapping([target], text)):
            return [Correction(target, moved_en(target.text, time, text))]
    if _OFF_EN.search(text):
        plans = [
            each
            for each in held
            if each.topic in ("plan", "goal", "habit", "activity", "member", "plays", "studies")
            or (each.topic == "event" and _JOINED_EN.search(each.text))
        ]
        target = _target(plans, text, turn, speaks_of_it=bool(_IT_EN.search(text)), reach=3)
        return [Correction(target, None)] if target else []
    if (match := _BACK_ON_EN.search(text)) and (
        eaten := [each for each in _overlapping(held, match["what"]) if each.topic in ("diet", "allergy")]
    ):
        return [Correction(each, None) for each in eaten]
    if (match := _WELL_EN.search(text)) and (what := (match["what"] or match["over"]).lower()):
        well = [each for each in held if each.topic in ("health", "allergy") and what.rstrip("s") in each.text.lower()]
        if well:
            return [Correction(each, None) for each in well]
    if match := _KIN_WELL_EN.search(text):
        who = match["kin"].lower()
        well = [
            each
            for each in held
            if each.topic in ("family", "health") and who in each.text.lower() and _ILL.search(each.text)
        ]
        if well:
            return [Correction(each, None) for each in well]
    if _AFTER_ALL_EN.search(text) and (about := _overlapping(held, text)):
        return [Correction(_most_alike(about, text), None)]
    taken = _TAKEN_BACK_EN.search(text)
    pieces = [piece for piece in re.split(r"[,;.]\s+", plain) if piece]
    nothing = any(_NOTHING_EN.match(piece) for piece in pieces[:3])
    if (match := next((m for piece in pieces if (m := _RENAMED_EN.match(piece))), None)) and _AGAIN_EN.search(text):
        named = [each for each in held if re.search(r" (?:called|named) [A-Z]", each.text)]
        name = match["new"].title()
        if named and (each := named[-1]) and name.lower() not in words.STOPWORDS and not each.text.endswith(name):
            return [Correction(each, re.sub(r"(called|named) [A-Z]\S*", rf"\1 {name}", each.text))]
    if taken or nothing:
        reach = 1 if _SCRATCHED_EN.search(text) else 4
        target = _target(held, text, turn, speaks_of_it=True, reach=reach)
        return [Correction(target, None)] if target else []
    return []


def _over_en(said: str, held: Sequence[Held], turn: int) -> list[Held]:
    """Return what a sentence without its opening says is over: what is missed, was given away, or came about."""
    if match := _MISSED_EN.match(said):
        return [each for each in _overlapping(held, match["what"]) if each.topic in ("habit", "member", "plays")]
    if _GIFT_EN.match(said):
        owned = [each for each in held if each.topic == "owns" and each.turn is not None and turn - each.turn <= 2]
        return owned[-1:]
    return _moves(held, turn) if _RELOCATED_EN.search(said) else []


def _moves(held: Sequence[Held], turn: int) -> list[Held]:
    """Return the plans to move to another place."""
    plans = [each for each in held if each.topic in ("plan", "goal") and each.turn != turn]
    return [each for each in plans if _MOVE_PLANNED.search(each.text)]


def _with_word(stated: str, text: str, match: re.Match[str]) -> str:
    """Return what was stated with the word of a sentence that is right: a whole day where it is part of one."""
    day, former = _day_around(text, match["new"]), _day_around(stated, match["old"])
    if day and former and any(map(str.isdigit, day[0])):
        return stated[: former.start()] + day[0] + stated[former.end() :]
    return re.sub(rf"\b{re.escape(match['old'])}\b", match["new"], stated, count=1)


def _day_around(text: str, word: str) -> re.Match[str] | None:
    """Return the day, with its weekday and month, of which a word is a part: 'Saturday 12 December' of 'Saturday'."""
    return next((day for day in _DAY_EN.finditer(text) if word in day[0]), None)


def moved_en(text: str, time: str, said: str = "") -> str:
    """Return an English text with a time in place of the last one that it names.

    Args:
        said: what moves it, which may tell on which side of that time the other lies.
    """
    times = list(_TIME_EN.finditer(text))
    if not times:
        return f"{text} {time}"
    last = times[-1]
    day, month = _BARE_DAY_EN.match(time), _MONTH_EN.search(last[0])
    if day and month:
        place = next(place for place, name in enumerate(MONTHS) if name.startswith(month[0][:3].title()))
        former = re.search(r"\b\d{1,2}(?!\d)", last[0])
        beside = _months_beside(former and former[0], re.sub(r"\D", "", day["day"]), said)
        time = f"on the {day['day']} of {MONTHS[(place + beside) % 12] if beside else month[0]}"
    kept = re.match(r"on |at |in |by |from ", last[0], re.IGNORECASE)
    if kept and not re.match(r"on |at |in |by |from |next |this |tomorrow", time, re.IGNORECASE):
        time = kept[0] + time
    return f"{text[: last.start()]}{time}{text[last.end() :]}"


def _months_beside(former: str | None, day: str, said: str) -> int:
    """Return by how many months a day is beside the former one: 1 for the 3rd that 28 April was put back to."""
    if former is None:
        return 0
    distance = number_of(day) - number_of(former)
    return int(distance < 0 and _LATER.search(said) is not None) - int(
        distance > 0 and _EARLIER.search(said) is not None
    )


def lacks_month(text: str, whole: str, *, chinese: bool) -> bool:
    """Return whether a text names a day alone, and another one that day with its month: 'the 14th'."""
    time, named = find_time(text, chinese=chinese), find_time(whole, chinese=chinese)
    if time is None or named is None:
        return False
    if chinese:
        return _BARE_DAY_ZH.match(time) is not None and _MONTH_ZH.search(named) is not None
    return _BARE_DAY_EN.match(time.replace("to ", "on ")) is not None and _MONTH_EN.search(named) is not None


def _chinese(text: str, held: Sequence[Held], turn: int, states: bool) -> list[Correction]:
    match = _INSTEAD_ZH.search(text) or _SAID_ZH.search(text) or _NOT_ZH.search(text)
    if match and (found := _containing(held, match["old"])):
        return [Correction(found, found.text.replace(match["old"], match["new"], 1))]
    if _RELOCATED_ZH.search(text) and (moves := _moves(held, turn)):
        return [Correction(each, None) for each in moves]
    moved = _MOVED_ZH.search(text)
    after = _TIME_ZH.search(text, moved.end()) if moved else None
    time = after[0] if after else find_time(text, chinese=True)
    if time and moved:
        dated = [each for each in held if find_time(each.text, chinese=True)]
        bare = _is_bare_move(text)
        dated = [each for each in dated if each.topic in _DATED] or [
            each for each in dated if each.topic not in _UNDATED and (bare or _overlapping([each], text))
        ]
        target = _target(dated, text, turn, speaks_of_it=True, reach=200)
        if target:
            return [Correction(target, moved_zh(target.text, time, text))]
    if _WELL_ZH.search(text) and (about := _overlapping(held, text)):
        well = [each for each in about if each.topic in ("health", "allergy", "diet", "rule")]
        if well:
            return [Correction(each, None) for each in well]
    if match := _KIN_WELL_ZH.search(text):
        well = [
            each
            for each in held
            if each.topic in ("family", "health") and match["kin"] in each.text and _ILL.search(each.text)
        ]
        if well:
            return [Correction(each, None) for each in well]
    if match := _UNDONE_ZH.search(text):
        plans = [each for each in held if each.topic in ("plan", "goal", "event") and match["verb"] in each.text]
        named = [each for each in plans if set(match["what"]) & set(each.text)]
        if target := next(reversed(named or (plans if len(plans) == 1 else [])), None):
            return [Correction(target, None)]
    if _LEFT_WORK_ZH.search(text) and (
        work := [each for each in held if each.topic in _WORK_TOPICS and each.topic != "plan"]
    ):
        return [Correction(each, None) for each in work if each.turn != turn]
    if _OFF_ZH.search(text):
        ending = [
            each for each in held if each.topic not in ("name", "age", "home", "origin", "allergy", "event", "birthday")
        ]
        # A name does not end so: '苏苏也退了' is not of '女朋友叫苏苏'.
        ending = [each for each in ending if each.topic != "family" or not _CALLED_ZH.search(each.text)]
        target = _target(ending, text, turn, speaks_of_it=False)
        if target is not None and target.topic in _PURSUITS:
            matter = target.about & content(text)
            return [Correction(each, None) for each in ending if each.topic in _PURSUITS and matter <= each.about]
        if target is None and _KIND_ZH.search(text):
            joined = [each for each in held if each.topic in ("member", "habit")]
            target = next(reversed([each for each in joined if each.topic == "member"] or joined), None)
        return [Correction(target, None)] if target else []
    if _TAKEN_BACK_ZH.search(text) and not (time and moved):
        target = _target(held, text, turn, speaks_of_it=not states, reach=3)
        return [Correction(target, None)] if target else []
    return []


_MOVE_ZH = re.compile("[改换推提挪延前后迟到成至了日子时间是在定的期嗯好先再又，,。！!不对]")
_IT_MOVED_EN = re.compile(
    r"\b(?:(?:so|oh|and|but|well|update|actually|apparently|they|we)\b,?|(?:it|that)(?:'s| has| is"
    r"| was|'ll| will)?(?: been| be| got)?"
    r"|(?:mov|push|postpon|delay|shift|chang|bump|reschedul)\w*|forward|back|now|to|until|till|just|it)\b",
    re.IGNORECASE,
)
_MOVE_EN = re.compile(
    r"\b(?:mov|push|postpon|delay|shift|chang|bump|switch|swapp|rebook|reschedul)\w*\b", re.IGNORECASE
)


def _is_bare_move(text: str) -> bool:
    return len(_MOVE_ZH.sub("", _TIME_ZH.sub("", text))) <= 1


def alike(corrected: Sequence[Held], held: Sequence[Held]) -> list[Held]:
    """Return other facts that say the same as corrected ones under another key: of the same matter at the same"
    " time."""
    keys = {each.key for each in corrected}
    found = []
    for each in held:
        if each.key in keys or each.topic not in _DATED:
            continue
        time = find_time(each.text, chinese=not each.text.isascii())
        for one in corrected:
            same_time = time is not None and time == find_time(one.text, chinese=not one.text.isascii())
            if one.topic in _DATED and same_time and each.about & one.about:
                found.append(each)
                break
    return found


def is_off(text: str) -> bool:
    """Return whether a text says that something does not happen."""
    return bool(_OFF_EN.search(text) or _OFF_ZH.search(text))


def is_only_moved(text: str, held: Held, *, chinese: bool) -> bool:
    """Return whether a sentence says nothing of a plan but its new time: '改成六月一号'."""
    if chinese:
        return _is_bare_move(text)
    return content(_MOVE_EN.sub("", _TIME_EN.sub(" ", text))) <= held.about


def moved_zh(text: str, time: str, said: str = "") -> str:
    """Return a Chinese text with a time in place of the last one that it names; see `moved_en`."""
    times = list(_TIME_ZH.finditer(text))
    last = times[-1]
    month = re.match(".*?月", last[0])
    if _BARE_DAY_ZH.match(time) and month:
        time = _month_beside_zh(last[0], time, said) or f"{month[0]}{time}"
    return f"{text[: last.start()]}{time}{text[last.end() :]}"


def _month_beside_zh(former: str, time: str, said: str) -> str | None:
    """Return a day with its month, if that is another one than the former day's."""
    date = _NUMBERED_DAY_ZH.search(former)
    beside = _months_beside(date["day"], time[:-1], said) if date else 0
    return f"{(number_of(date['month']) - 1 + beside) % 12 + 1}月{time}" if date and beside else None


def _overlapping(held: Iterable[Held], text: str) -> list[Held]:
    spoken = content(text)
    return [each for each in held if each.about & spoken]


def _most_alike(held: Sequence[Held], text: str) -> Held:
    spoken = content(text)
    return max(held, key=lambda each: (len(each.about & spoken), each.order))


def _containing(held: Sequence[Held], word: str) -> Held | None:
    return next(
        (each for each in reversed(held) if re.search(rf"(?<![a-z]){re.escape(word)}", each.text, re.IGNORECASE)), None
    )


def _target(held: Sequence[Held], text: str, turn: int, *, speaks_of_it: bool, reach: int = 60) -> Held | None:
    """Return the held fact that shares most with the text, the latest of equals; else the last one if 'it' is"
    " meant."""
    spoken = content(text)
    shared = [(len(each.about & spoken), each.order, each) for each in held if each.about & spoken]
    if shared:
        return max(shared, key=lambda entry: entry[:2])[2]
    if not speaks_of_it or not held:
        return None
    last = held[-1]
    return last if turn - (last.turn if last.turn is not None else 0) <= 2 * reach else None


def carry_over(sentence: str, fix: Correction) -> str | None:
    """Return the sentence that stated a fact with what is right in place of what was wrong; None if it lacks that.

    The part in which the two texts of the fact differ is replaced where the sentence has it too.
    """
    before, after = fix.held.text, fix.text or ""
    start = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    while start and before[start - 1].isalnum() and before[start - 1].isascii():
        start -= 1
    while end and before[-end].isalnum() and before[-end].isascii():
        end -= 1
    wrong, right = before[start : len(before) - end], after[start : len(after) - end]
    place = sentence.lower().rfind(wrong.lower()) if wrong.strip() else -1
    return None if place < 0 else sentence[:place] + right + sentence[place + len(wrong) :]
