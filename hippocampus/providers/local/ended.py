"""What is over, or is another one now, in words that do not repeat what was said.

    'I was laid off', '被裁了'                                  the work ends
    'I can eat shellfish again', '能吃虾了'                      the allergy or the diet ends
    'the shellfish allergy was a mistake', '虾过敏那个是误诊'     the allergy ends, and no new one is stated
    'longer answers are fine now', '可以详细一点了'              the rule to be short ends
    'go back to English please', '还是用中文吧'                  the rule has the other language
    'Mum moved into a care home', '女儿改名叫小雨'               the relative has another home or name

Each rule names the topics that it may change. A rule that could mean several things changes none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from hippocampus.providers.local import corrections, patterns_en, restated, slots
from hippocampus.providers.local.corrections import Correction, Held
from hippocampus.text import words

_WORK = frozenset(("employer", "occupation", "new_job", "employment", "work_terms", "field_of_work"))
_EATEN = frozenset(("allergy", "diet", "health", "medication"))
_SUBJECT_EN = r"^(?:(?:I|we)(?:'ve|'m|'re| have| am| are| was| were)? )"
_LATELY_EN = (
    r"(?:(?:just|now|finally|already|recently|also|actually|since|sadly|officially|completely|totally" r"|really) )*"
)

_DISMISSED_EN = re.compile(
    rf"{_SUBJECT_EN}{_LATELY_EN}(?:got |been |getting |being )*"
    r"(?:fired(?! up)|sacked|laid off|made redundant|let go(?! of)|dismissed(?! as)|the sack)\b"
    r"(?:.{0,12}? (?:from|by) (?P<where>.+))?",
    re.IGNORECASE,
)
_DISMISSED_BY_EN = re.compile(
    rf"^(?P<where>they|[A-Z][\w&' -]{{1,30}}?|my (?:boss|manager|employer)|the (?:company|firm|boss"
    rf"|owners?))(?:'ve| have| has)?"
    rf" {_LATELY_EN}(?:fired me|sacked me|laid me off|let me go|made me redundant)\b(?! (?:to|with|in|home|on))"
    r"|^I(?:'m| am) (?:out of work|unemployed|out of a job)\b",
    re.IGNORECASE,
)
_NO_WORK_EN = re.compile(
    r"^I(?:'m| am)? (?:no longer|don't|do not|not) (?:work(?:ing)?|employed) (?:there|for them|with them|at that place)"
    r"(?=$|[ ,.!])|^I(?:'ve| have)? (?:just |finally |already )?stopped working there\b|^I lost my job\b",
    re.IGNORECASE,
)
_LEFT_EN = re.compile(
    rf"^I(?:'ve| have)? {_LATELY_EN}(?:left|quit|resigned from) (?P<where>(?-i:[A-Z])[^,.;]*)", re.IGNORECASE
)
_DISMISSED_ZH = re.compile(
    "(?<![没不])被(?:[^，。]{0,4})?(?:裁|炒|开除|辞退|解雇|优化)|失业了|(?:已经)?不在(?:那"
    "|这)[里儿边]?(?:工作|上班|干)了"
)
#: A job, and words that say of which one somebody speaks.
_LEAVES = re.compile(
    r"\b(?:quit|left|leav(?:e|ing)|resign\w*|notice|fired|laid off|sacked|redundant|let go|work(?:ing)? there|job)\b"
    r"|辞|离职|裁|不干了|不做了",
    re.IGNORECASE,
)
_FORMER_JOB = re.compile(
    r"\b(?:old|previous|former|last) (?:job|place|work|employer|company|firm)\b|(?:那边|那里|原来|之前" r"|老东家)"
)
_THERE = re.compile(r"\bthere\b|那边|那里|那儿", re.IGNORECASE)
_AT_EN = re.compile(r"\b(?:at|from|with|by|left|quit) (?:the )?(?P<name>[A-Z][\w&'-]*(?: (?:& )?[A-Z][\w'-]*)*)")
_NAME_EN = re.compile(r"\b[A-Z][\w'-]{2,}")
_BEGINS_LATER = re.compile(
    r"\b(?:start|begin|join|will|going to|offer(?:ed)?|got (?:the|a) (?:new )?job|from (?:Monday|next))\b"
    r"|要去|准备去|入职|即将|拿到",
    re.IGNORECASE,
)

_EATS_AGAIN_EN = re.compile(
    rf"^(?:(?:I|we)(?:'m| am)? (?:can|able to|allowed to|may) {_LATELY_EN}(?:eat|drink|have|tolerate|handle|touch)"
    rf"|(?:I|we)(?:'ve| have|'m| am)? {_LATELY_EN}(?:started (?:eating|drinking|having)|start(?:ed)? to"
    rf" (?:eat|drink|have)"
    rf"|eat(?:ing)?|drink(?:ing)?|having)) (?P<what>[a-z][a-z -]{{2,30}}?)"
    r"(?: (?:again|once more)|(?<= )(?:now|these days|after all))(?=$|[ ,.!])",
    re.IGNORECASE,
)
_EATS_NOW_EN = re.compile(
    rf"^(?:I|we)(?:(?:'m| am)? (?:can|able to|allowed to|may) {_LATELY_EN}(?:eat|drink|have|tolerate|handle)"
    r"|(?:'m|'re| am| are) (?:fine|ok|okay|all right|alright) with)"
    r" (?P<what>[a-z][a-z -]{2,30}?) (?:now|these days|after all)(?=$|[ ,.!])",
    re.IGNORECASE,
)
_BACK_TO_EN = re.compile(
    r"^(?:I|we)(?:'m|'re| am| are) back to (?:eating|drinking|having) (?P<what>[a-z][a-z -]{2,30}?)(?: again| now)?$",
    re.IGNORECASE,
)
_CLEARED_EN = re.compile(
    r"\btest(?:ed|s)? (?:(?:has |have )?(?:come|came) back )?negative\b"
    r"|\b(?:grown out of|grew out of|outgr(?:own|ew)|cured of|(?:got|gotten) over|lost) (?:my|the|that"
    r"|his|her) .{0,30}?allerg"
    r"|\ballergy (?:test|tests|results?)\b.{0,20}\bnegative\b|\ballerg(?:y|ies)(?: is| has|'s| are|'ve| have)?"
    r" (?:now |finally |all |completely )*(?:gone|cleared(?: up)?|disappeared)\b",
    re.IGNORECASE,
)
_NO_ALLERGY_EN = re.compile(
    r"\bno (?:[a-z]+ )?allerg(?:y|ies) (?:after all|any ?more)\b"
    r"|\ballerg(?:y|ies) (?:isn't|wasn't|is not|was not|was never|were never|aren't) (?:real|there|an allergy)\b|"
    r"\ballerg(?:y|ies)(?: thing)?(?: (?:was|were|is|turned out to be|turns out to be|has been|had been))"
    r"(?: (?:just|only|all|actually|never|in fact))*(?: (?:an?|my|the))?"
    r" (?:mistake|error|misdiagnos(?:is|ed)|false alarm|wrong|mix-up|misunderstanding|not real|nothing"
    r"|real)(?=$|[ ,.!])",
    re.IGNORECASE,
)
_REAL_EN = re.compile(r"\ballerg\w+ (?:is|was) (?:actually |only )?real\b", re.IGNORECASE)
_INTOLERANT_EN = re.compile(
    r"^(?:(?:actually|well|so|oh|no|sorry|turns out|it turns out|the doctor says),? )*(?:that |it's "
    r"|it is |it was |I'm |I am )+"
    r"(?:(?:actually|just|only|really) )*(?:an? )?(?:[a-z]+ )?intoleran(?:ce|t)\b",
    re.IGNORECASE,
)
_INTOLERANT_ZH = re.compile("(?:其实|原来|实际上|不是过敏)[^。]{0,6}(?:只是|是|叫)?[^，。]{0,3}不耐受")
_EATS_AGAIN_ZH = re.compile(
    "(?:(?<!不)(?<!没)(?:又|重新|恢复|现在|终于|已经)[^，。]{0,2}?(?:开始|能|可以|敢)?|(?<!不)(?:能|可以|敢))"
    "(?:吃|喝|碰|抽)上?(?P<what>[^，。了的吗呢]{1,6})了(?=$|[，。！!])"
)
_CLEARED_ZH = re.compile("(?:过敏|皮试)[^。]{0,10}阴性|(?:脱敏|过敏)[^，。]{0,4}(?:成功|治好)")
_NO_ALLERGY_ZH = re.compile("过敏[^，。]{0,8}(?:误诊|搞错|弄错|误会|乌龙|假的|不是真的)|误诊")
_MEATLESS = re.compile(r"\b(?:vegan|vegetarian|veggie|plant-based)\b|吃素|素食|不吃[肉荤]", re.IGNORECASE)
_MEAT = re.compile(r"\b(?:meat|chicken|beef|pork|bacon|steak|burgers?|lamb|fish)\b|肉|荤|鱼", re.IGNORECASE)
_VEGAN = re.compile(r"\bvegan\b|纯素|全素", re.IGNORECASE)
_DAIRY = re.compile(r"\b(?:dairy|cheese|milk|eggs?|butter|yoghurt|yogurt|cream|honey)\b|奶|蛋", re.IGNORECASE)
_FORBIDS_FOOD = re.compile(
    r"\b(?:allerg\w+|intoleran\w+|not|no longer|never|avoids?|off|without|quit|free)\b|过敏|不|戒|忌", re.I
)

_MOVED_KIN_EN = re.compile(
    rf"\b(?P<kin>{patterns_en.KIN.replace('?P<about>', '?:')})(?: [A-Z]\w+)?(?:'s| has| had|'ve| have)?"
    r" (?:just |now |finally |recently |already )*(?:moved(?= (?:in)?to\b| back to\b| out\b)"
    r"|(?:gone|went)(?= back to\b| into an? (?:care|nursing|retirement) home)) (?P<to>(?:in)?to|back to|out)\b"
    r"(?P<where>[^.,;!]*)",
    re.IGNORECASE,
)
_LIVES = re.compile(r"\b(?:who lives|lives|living|is (?:staying|based))\b.*$", re.IGNORECASE)
_HOMELY = re.compile(
    r"\b(?:home|house|flat|apartment|place|bungalow|hospice|[A-Z][a-z]+|with (?:me|us|my|our)|next door|own)\b"
)
_RENAMED_KIN_ZH = re.compile(
    "(?P<kin>女儿|儿子|闺女|孩子|老大|老二|妹妹|弟弟|姐姐|哥哥|猫|狗)[^，。]{0,4}?(?:改名|改"
    "|换)(?:了名|名|名字)?(?:叫|成|为|字叫|叫做)+(?P<new>[\u4e00-\u9fff]{1,3}?)(?:了|啦)?(?=$"
    "|[，。！!])"
)
_CALLED_ZH = re.compile("叫[\u4e00-\u9fff]{1,3}$")

_LANGUAGE = (
    r"(?:English|French|German|Italian|Spanish|Portuguese|Japanese|Chinese|Mandarin|Cantonese|Korean"
    r"|Arabic|Russian|Polish"
    r"|Dutch|Swedish|Danish|Norwegian|Finnish|Greek|Turkish|Hindi|Vietnamese|Thai|Czech|Hungarian|Ukrainian|Hebrew)"
)
_IN_LANGUAGE = re.compile(rf"\b{_LANGUAGE}\b")
_LANGUAGE_AGAIN_EN = re.compile(
    r"^(?:(?:ok|okay|so|and|but|no|right|please|let's|can we|can you|could you|you can|we can|actually|just)[,.]? )*"
    rf"(?:(?:(?:go|switch|change|swap|come|revert)(?:ing)? )?back (?:to|in|into) (?P<back>{_LANGUAGE})"
    rf"|(?:(?:use|speak|write|talk|answer|reply|do)(?: in)? )?(?P<again>{_LANGUAGE}) (?:again|is fine"
    rf"|is okay|is ok|from now on))"
    r"(?:,? (?:please|now|again|from now on|is fine|thanks|from here on))*$",
    re.IGNORECASE,
)
_TONGUE_ZH = (
    "(?:中文|汉语|普通话|国语|粤语|广东话|英[文语]|日[文语]|法[文语]|德[文语]|韩[文语]|俄[文语]"
    "|西班牙[文语]|意大利[文语])"
)
_IN_LANGUAGE_ZH = re.compile(_TONGUE_ZH)
_LANGUAGE_AGAIN_ZH = re.compile(
    f"^(?:好[了吧]?[，,])?(?:咱们?|我们|你|请|那|以后)*(?:还是|换回|改回|切回|说回|恢复|改|换)+(?:成"
    f"|到|用|讲|说)*(?P<new>{_TONGUE_ZH})"
    "(?:回答|回复|聊|交流|说|讲)?(?:吧|了|好了)*$"
)
_SHORT = re.compile(
    r"\b(?:short|brief|concise|terse|succinct|snappy|(?:one|two|three|few) (?:sentences?|lines?|words)|bullets?)\b"
    r"|简短|简洁|精简|简单|短一?点|[一两三]句|长篇|啰嗦|废话",
    re.IGNORECASE,
)
_LENGTH = r"(?:answers?|repl(?:y|ies)|responses?|messages?|explanations?|ones|texts?)"
_LONGER_EN = re.compile(
    rf"\b(?:longer|long|detailed|more detailed|full|fuller|normal-length|in-depth) {_LENGTH} (?:are|is"
    rf"|would be|will be)"
    r" (?:now |totally |absolutely |perfectly )*(?:fine|ok|okay|good|welcome|great|alright|all right|allowed)\b"
    r"|\b(?:you can|you may|feel free to|please|it's fine to|it's ok to) (?:now )?(?:go into"
    r"|give(?: me)?|write|answer|reply"
    r"|explain)\b.{0,20}\b(?:longer|more detail|in detail|more detailed|at length)\b.{0,12}\b(?:again"
    r"|now|from now on)\b"
    r"|\b(?:no need to|you don't (?:have|need) to|needn't) (?:keep (?:it|them|things|answers|your"
    r" answers)|be) (?:so |that )?"
    r"(?:short|brief|concise)\b.{0,8}\b(?:any ?more|now|any longer)\b"
    rf"|^(?:please )?(?:forget|drop|scrap|no more|enough (?:of|with)|never ?mind) (?:about )?(?:the "
    rf"|those |my |these )?(?:short|brief"
    rf"|concise|one-line) {_LENGTH}$",
    re.IGNORECASE,
)
_MORE_EN = re.compile(
    r"^(?:(?:ok|okay|so|and|but),? )*(?:you can|you may|feel free to) (?:be (?:a bit |a little )?(?:more )?(?:detailed"
    r"|verbose|thorough|wordy)|(?:write|say|tell me) more)(?: (?:again|now|from now on|if you like))*$",
    re.IGNORECASE,
)
_NEEDLESS_EN = re.compile(
    r"^(?:the |those )?(?P<what>[a-z][a-z -]{2,30}?) (?:aren't|are not|isn't|is not|are no longer|is no longer)"
    r" (?:needed|necessary|required|wanted)(?: any ?more| now)?$",
    re.IGNORECASE,
)
_LONGER_ZH = re.compile(
    "(?:可以|能)(?:说|写|讲|回答)?得?(?:更|再)?(?:详细|长|细|具体|多)(?:一?[点些])?(?:说|写|讲|了)*了$"
    "|(?:不用|不必|不需要|别)(?:再)?(?:那么|这么|太)?(?:简短|简洁|简单|短)了?$|(?:不用"
    "|不必)(?:再)?(?:限制|管)(?:字数|长度)了?$"
)
_ALLOWED_ZH = re.compile(
    "^(?P<what>[^，。]{2,8}?)(?:现在|以后|又)?(?:可以|能)(?:再|随便)?(?:用|发|加|说|写|放|打)了(?:吧|哈)?$"
)
_FORBIDS_ZH = re.compile("不[要许准能用]|别|禁止|少")

_PREFERRED_NAME_EN = re.compile(
    r"^(?:(?:actually|oh|well|by the way|btw|but|so),? )*(?:I(?:'d| would)? (?:really |actually |now "
    r"|much )*(?:prefer(?: to be called)?"
    r"|rather be called|rather go by)|I(?:'m going| go) by|I(?:'d| would) rather you called me)"
    r" (?P<new>(?-i:[A-Z])[a-z]+)"
    r"(?: (?:now|actually|instead|these days|really|please))*$",
    re.IGNORECASE,
)
_NICKNAME_ZH = re.compile("(?:小|老|阿).|.(?:哥|姐|总|老师|师傅|医生)|.{1,2}(?:老师|先生|女士)")
_CALL_ZH = re.compile("^(?:以后|今后|往后|还是|请)*(?:都)?叫我(?P<new>[\u4e00-\u9fff]{2,4}?)(?:吧|就好|就行|好了)*$")
_GONE_OFF_EN = re.compile(
    rf"^(?:I|we)(?:'ve| have|'m| am)? {_LATELY_EN}(?:(?:gone|went) off (?!to\b|on\b|with\b|for\b|in\b"
    rf"|and\b|work\b|sick\b|the)"
    r"|(?:fell|fallen) out of love with |lost (?:all )?interest in |no longer (?:into|fond of|like|love|enjoy) "
    r"|(?:sick|tired|bored) of (?=.*\b(?:now|these days)\b))(?P<what>[a-z][\w -]{2,30}?)(?: (?:now"
    r"|these days|lately|completely|altogether))*$",
    re.IGNORECASE,
)
_DISLIKES = re.compile(r"\b(?:dislikes?|hates?|not|n't|never|no longer|off)\b|不|讨厌", re.IGNORECASE)
_GRADUATED_EN = re.compile(
    rf"^(?:I|we)(?:'ve| have)? {_LATELY_EN}(?:graduated|(?:finished|completed|got|passed) (?:my |the"
    rf" )?(?:uni|university|college"
    r"|degree|studies|phd|masters?|master's|bachelor'?s?|course|apprenticeship)(?: degree)?(?=$|[ ,.!]))",
    re.IGNORECASE,
)
_GRADUATED_ZH = re.compile(
    "(?<!没)(?<!快)(?<!要)(?<!后)(?:我|终于|已经|刚|[一二三四五六七八九十]月|今年|上个?月|硕士|博士"
    "|本科|大学|研究生|高中)毕业了(?=$"
    "|[，。！!])|^毕业了|拿到(?:学位|毕业证)"
)
_OPERATED_EN = re.compile(
    rf"^(?:they|the (?:doctors?|surgeons?|hospital))(?:'ve| have)? {_LATELY_EN}(?:replaced|removed"
    rf"|fixed|operated on|took out)"
    r" (?:the|my) (?P<what>[a-z]+)|^I(?:'ve| have)? (?:finally |just )?(?:had|got) (?:the|my) (?P<had>[a-z]+) "
    r"(?:replaced|removed|fixed|done|out|operated on|mended)\b",
    re.IGNORECASE,
)
_AHEAD_EN = re.compile(r"\b(?:will|going to|next|tomorrow|if|wish)\b", re.IGNORECASE)
_PASSED_EN = re.compile(
    rf"^(?:I|we)?(?:'ve| have)? ?{_LATELY_EN}passed (?:my|the) (?:[a-z]+ ){{0,2}}(?:test"
    rf"|exams?|finals?)\b",
    re.IGNORECASE,
)
_SUBJECT_OF_TEST = re.compile(r"passed (?:my|the) (?:(?P<what>[a-z]+) )?(?:test|exams?|finals?)\b", re.IGNORECASE)
_PASSED_ZH = re.compile(
    "(?:[级证]|考试|驾照|科目[一二三四])(?:终于|已经)?(?:我)?(?:拿下|考过|通过|过|拿到)了|(?:拿下|考过"
    "|通过)了[^，。]{0,4}(?:[级证]|考试|驾照|科目)"
)
_EXAMINED = re.compile(r"\b(?:tests?|exams?|finals?)\b(?! (?:drive|results?))|考", re.IGNORECASE)
_LONG_AGO = re.compile(
    r"\b(?:in|since) (?:19|20)\d\d\b|\byears? ago\b|\bback in\b|\b(?:once|twice|used to|when I was)\b"
    r"|\d{4}年|年前|那年|的时候"
)
_STUDENT = re.compile(
    r"\b(?:student|undergraduate|(?:first|second|third|fourth|final) year|freshman|sophomore|junior"
    r"|senior|degree|phd|masters?"
    r"|university|uni|college|stud(?:y|ies|ying))\b|学生|[大研博][一二三四]|在读|读书|读研|读博|上大学|专业",
    re.IGNORECASE,
)
_TONGUE = re.compile(rf"\b{_LANGUAGE}\b|[文语]$")
_INSTEAD_OF_EN = re.compile(
    r",? (?:instead of|rather than|in place of) (?:the |my |our )?(?P<old>[A-Za-z][\w' -]{1,28}?)(?=$"
    r"|[,.!;])",
    re.IGNORECASE,
)
_STARTED = frozenset(
    ("studies", "plays", "habit", "activity", "preference", "medication", "diet", "member", "owns", "favorite")
)
_COUPLED = re.compile(
    r"^I(?:'ve| have|'m| am)? (?:just |finally |recently |now |been )*(?:met (?:someone|somebody)(?=$"
    r"|[,.!]| special| new| lovely)|seeing (?:someone|somebody)"
    r"|got (?:a|myself a) (?:new )?(?:boyfriend|girlfriend|partner)|in a relationship|dating (?:someone|somebody))\b"
    r"|脱单了|谈恋爱了|有(?:男|女)?(?:朋友|对象)了",
    re.IGNORECASE,
)
_SINGLE = re.compile(r"\bsingle\b|单身", re.IGNORECASE)
_NUMBER_EN = re.compile(
    r"^(?:(?:oh|btw|by the way|also|so|hey|hi|update),? )*(?:I(?:'ve| have)?(?: got)? a |got a "
    r"|(?:this|here)(?:'s| is) my |my )?"
    r"(?:new (?P<kind>(?:phone|mobile|cell) )?number(?: is|'s|:|,|\s[-–—])?\s*(?:it's )?"
    r"|(?P<kind2>(?:phone|mobile|cell) )?number (?:has |is )?changed?(?: to|[,;:]? (?:it's|it is|the"
    r" new one is|now it's))? )"
    r"(?P<number>\+?\d[\d ()-]{5,})",
    re.IGNORECASE,
)
_ONLY_EN = re.compile(
    r"^(?:(?:actually|sorry|no|wait|oh|well|I mean),? )*(?:it's |I'm |it is |I am )?(?:only|just)"
    r" (?:allergic to |the )?"
    r"(?P<kept>[a-z][\w' -]{1,30}?),?(?: actually| really| in fact)?[,;]? (?:and )?not (?:to |the"
    r" )?(?P<old>[a-z][\w' -]{1,30}?)$"
    r"|^(?:(?:actually|sorry|no|wait|oh|well|I mean),? )*not (?:to |the"
    r" )?(?P<old2>[a-z][\w' -]{1,30}?)[,;] (?:only|just) (?:to |the )?"
    r"(?P<kept2>[a-z][\w' -]{1,30}?)$",
    re.IGNORECASE,
)
_ONLY_ZH = re.compile(
    "^(?:不对|其实|说错了|等等)?[，,]?(?:其实)?(?:只|就)(?:有|是"
    "|对)?(?P<kept>[^，。]{1,8}?)(?:过敏)?[，,](?:没有|不是|不包括|不含|没"
    "|对)(?P<old>[^，。]{1,8}?)(?:不过敏|没事)?$"
)
_LISTED = frozenset(("allergy", "diet", "preference", "medication", "plays", "speaks", "pet", "studies"))
_STOPPED_ZH = re.compile(
    "(?:^|[，,。]|我)(?:现在|以后|已经|早就)?不(?:再)?(?P<verb>[跑游练打骑跳爬弹画写唱健])(?:步|泳"
    "|车)?了(?:[，,]?(?:改|换)(?:成|去|为|学)?(?P<new>[\u4e00-\u9fff]{2,5}?)了?)?(?=$|[，,。！!])"
)
_PURSUED = frozenset(("habit", "activity", "plays", "member"))


def of_sentence(
    text: str, held: Sequence[Held], stated: Iterable[str], *, chinese: bool, asked: str = ""
) -> list[Correction]:
    """Return what a sentence ends or changes of what is known, in words of their own.

    Args:
        held: the facts that it may change.
        stated: the topics of the facts that it states.
        asked: the turn before, if the sentence may answer a question in it.
    """
    text = " ".join(text.replace("’", "'").split()).strip(" .!?…。！？~")
    if not held or not text:
        return []
    for rule in _RULES_ZH if chinese else _RULES_EN:
        if found := rule(text, held, frozenset(stated)):
            return found
    return []


def takes_back_allergy(text: str) -> bool:
    """Return whether a sentence says of an allergy that there is none: it states none, whatever is known."""
    text = text.replace("’", "'")
    if _NO_ALLERGY_EN.search(text):
        return _REAL_EN.search(text) is None or re.search(r"\bnever\b", text, re.IGNORECASE) is not None
    return bool(
        _NO_ALLERGY_ZH.search(text)
        or _CLEARED_ZH.search(text)
        or (_CLEARED_EN.search(text) and "allerg" in text.lower())
    )


def is_of_another_allergy(text: str) -> bool:
    """Return whether a sentence that ended nothing takes back an allergy that is not known."""
    return takes_back_allergy(text) and re.search("allerg|过敏", text, re.IGNORECASE) is not None


_NEWS_EN = re.compile(r"(?i:good|great|big|bad|sad|happy) news[,:!—–-]+ (?!my\b|our\b|[A-Z])")


def is_of_speaker(text: str) -> bool:
    """Return whether a sentence has no person as its subject, or tells what was done to its speaker.

    'Longer answers are fine now', 'English is fine again', 'Lidl let me go'.
    """
    text = " ".join(text.replace("’", "'").split()).strip(" .!")
    rules = (_LONGER_EN.search, _LANGUAGE_AGAIN_EN.match, _NEEDLESS_EN.match, _DISMISSED_BY_EN.match, _NEWS_EN.match)
    return any(matches(text) for matches in rules)


def is_another_job(held: Held, text: str, asked: str, said: str | None) -> bool:
    """Return whether somebody who leaves a job leaves another than this one: one that they name, or the former one.

    Args:
        asked: the turn before: 'there' is the place that it names.
        said: the sentence of the same slice that states the job; None if it was known before.
    """
    if held.topic not in _WORK or not _LEAVES.search(text):
        return False
    named = [match["name"] for match in _AT_EN.finditer(text)]
    if not named and _THERE.search(text):
        named = _NAME_EN.findall(re.sub(r"(?:^|[.!?] )[A-Z][a-z]+", "", asked)) if asked else []
    own = _NAME_EN.findall(held.text)
    if named and own:
        return not any(word in name for name in named for word in own) and not any(name in held.text for name in named)
    if said is None:
        return False
    return bool(_BEGINS_LATER.search(said) or _FORMER_JOB.search(text))


def without_former(text: str, held: Sequence[Held]) -> str:
    """Return a sentence without what it names as the former one: 'learning Portuguese instead of Spanish'."""
    match = _INSTEAD_OF_EN.search(text)
    if match is None or not _naming(held, match["old"]):
        return text
    return text[: match.start()] + text[match.end() :]


def as_stated(text: str) -> str:
    """Return a statement that lacks its verb in full: 'New number: 07700 900456'."""
    if match := _NUMBER_EN.match(text.replace("’", "'")):
        return f"My {(match['kind'] or match['kind2'] or '').lower()}number is {match['number'].strip()}."
    return text


def _end(found: Iterable[Held], *unsaid: str) -> list[Correction]:
    return [Correction(each, None, frozenset(unsaid)) for each in found]


def _naming(held: Iterable[Held], what: str) -> list[Held]:
    """Return the facts whose text has a word; a Chinese one need not stand apart."""
    what = what.strip().lower()
    if not what.isascii():
        return [each for each in held if what in each.text]
    word = re.compile(rf"(?<![a-z]){re.escape(what.removesuffix('s'))}(?:e?s)?(?![a-z])", re.IGNORECASE)
    return [each for each in held if word.search(each.text)]


def _left_work(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    work = [each for each in held if each.topic in _WORK]
    if match := _DISMISSED_EN.match(text) or _DISMISSED_BY_EN.match(text) or _LEFT_EN.match(text):
        where = match["where"] or ""
        if _LONG_AGO.search(text):
            return []
        if _ANY_EMPLOYER.match(where):
            where = ""
        if names := _NAME_EN.findall(where):
            work = [each for each in work if any(name in each.text for name in names)]
        elif where and not _ANY_POST.search(where):
            work = [each for each in work if corrections.content(where) & corrections.content(each.text)]
        return _end((each for each in work if _is_post(each)), "relationship_status")
    if _NO_WORK_EN.match(text):
        return _end(each for each in work if _is_post(each))
    return []


_ANY_EMPLOYER = re.compile(r"(?:they|my|the)\b", re.IGNORECASE)
_ANY_POST = re.compile(
    r"\b(?:my|the|that) (?:[a-z]+ )?(?:job|work|company|firm|place|post|position|boss|manager)\b|\bthere\b", re.I
)


def _is_post(held: Held) -> bool:
    """Return whether a fact about work is about a post, not about what somebody is by profession."""
    return held.topic != "occupation" or re.search(r"\b(?:at|for|works)\b", held.text) is not None


def _edible(text: str, held: Sequence[Held], stated: frozenset[str]) -> list[Correction]:
    match = _EATS_AGAIN_EN.match(text) or _EATS_NOW_EN.match(text) or _BACK_TO_EN.match(text)
    return _eats(match["what"], held) if match and not re.search(r"\bif\b", text) else []


def _eats(what: str, held: Sequence[Held]) -> list[Correction]:
    eaten = [each for each in held if each.topic in _EATEN and _FORBIDS_FOOD.search(each.text)]
    about = _naming(eaten, what)
    if _MEAT.search(what):
        about += [each for each in held if each.topic == "diet" and _MEATLESS.search(each.text) and each not in about]
    if _DAIRY.search(what):
        about += [each for each in held if each.topic == "diet" and _VEGAN.search(each.text) and each not in about]
    return _end(about, *(() if all(each.topic == "diet" for each in about) else ("diet", "event", "family")))


def _no_allergy(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    allergies = [each for each in held if each.topic == "allergy"]
    if not (takes_back_allergy(text) or _CLEARED_EN.search(text)):
        return []
    # A word for the substance stands before 'allergy' or after 'for'.
    about = [each for each in allergies if _substance(each) and _substance(each) in text.lower()]
    if not about and len(allergies) == 1 and _ALLERGY.search(text) and not _OTHER_SUBSTANCE.search(text):
        about = allergies
    return _end(about, "allergy", "event", "health")


_ALLERGY = re.compile("allerg|过敏|皮试|误诊", re.IGNORECASE)
_OTHER_SUBSTANCE = re.compile(
    r"\b(?!the\b|my\b|that\b|this\b|an?\b|any\b|his\b|her\b|whole\b)[a-z]+ allerg|\bfor (?!the|my|it|that"
    r"|an?\b|all)[a-z]+|[^我这那个的查测，。 ]{1,4}过敏",
    re.I,
)


def _substance(held: Held) -> str:
    match = re.search(r"allergic to (?P<en>.+)$|对(?P<zh>.+?)(?:严重)?过敏", held.text)
    return (match["en"] or match["zh"]).lower().removesuffix("s") if match else ""


def _intolerance(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    if not (_INTOLERANT_ZH.search(text) if words.CJK_CHARACTER.search(text) else _INTOLERANT_EN.match(text)):
        return []
    spoken = {term for term in corrections.content(text) if term.startswith("=")}
    allergies = [each for each in held if each.topic == "allergy"]
    kindred = [each for each in allergies if spoken & each.about]
    return _end(kindred or (allergies if len(allergies) == 1 and not re.search("lactose|乳糖", text) else []))


def _moved_kin(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    match = _MOVED_KIN_EN.search(text)
    if match is None or not _HOMELY.search(match["where"]) or _IS_THERE.search(match["where"]):
        return []
    who = slots.MEANS.get(match["kin"].lower(), match["kin"].lower())
    homes = [
        each
        for each in held
        if each.topic == "family" and slots.kin_of(each.key, each.text) == who and _LIVES.search(each.text)
    ]
    if len(homes) != 1:
        return []
    return [
        Correction(
            homes[0],
            _LIVES.sub(f"who moved {match['to'].lower()}{match['where'].rstrip()}", homes[0].text),
            frozenset(("family",)),
        )
    ]


_IS_THERE = re.compile(
    r"\bfor (?:a|the|two|three) (?:week|weekend|few|couple|holiday)|\b(?:trip|holiday|visit|concert|shop|church)\b"
    rf"|^ (?:{patterns_en.DAYS}|{patterns_en.MONTH})\b",
    re.IGNORECASE,
)


def _renamed_kin(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    match = _RENAMED_KIN_ZH.search(text)
    if match is None:
        return []
    kin = slots.kin_of("", match["kin"])
    called = [
        each
        for each in held
        if each.topic in ("family", "pet")
        and _CALLED_ZH.search(each.text)
        and (match["kin"] in each.text or (kin and slots.kin_of(each.key, each.text) == kin))
    ]
    named = [each for each in called if each.text.rpartition("叫")[2] in text[: match.start("new")]] or called
    if len(named) != 1:
        return []
    return [Correction(named[0], _CALLED_ZH.sub(f"叫{match['new']}", named[0].text), frozenset(("family", "pet")))]


def _language(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    rules = [each for each in held if each.topic == "rule"]
    if match := _LANGUAGE_AGAIN_EN.match(text):
        new, pattern = match["back"] or match["again"], _IN_LANGUAGE
        new = new[0].upper() + new[1:]
    elif match := _LANGUAGE_AGAIN_ZH.match(text):
        new, pattern = match["new"], _IN_LANGUAGE_ZH
    else:
        return []
    other = [each for each in rules if (was := pattern.search(each.text)) and was[0].lower() != new.lower()]
    return [
        Correction(each, pattern.sub(new, each.text), frozenset(("rule",)))
        for each in other
        if not _SOMETIMES.search(each.text)
    ]


_SOMETIMES = re.compile(r"\b(?:when|if|unless|for|with|about|translate)\b|的时候|如果|跟", re.IGNORECASE)


def _longer(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    if not (_LONGER_EN.search(text) or _MORE_EN.match(text) or _LONGER_ZH.search(text)):
        return []
    return _end((each for each in held if each.topic == "rule" and _SHORT.search(each.text)), "rule")


def _needless(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    match = _NEEDLESS_EN.match(text)
    return _end(_naming((each for each in held if each.topic == "rule"), match["what"]), "rule") if match else []


def _allowed(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    match = _ALLOWED_ZH.match(text)
    what = match["what"] if match else ""
    return _end(
        (
            each
            for each in held
            if each.topic == "rule" and what and what in each.text and _FORBIDS_ZH.search(each.text)
        ),
        "rule",
    )


def _name(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    names = [each for each in held if each.topic == "name"]
    if len(names) != 1:
        return []
    was = re.split(r" |叫", names[0].text)[-1]
    if match := _CALL_ZH.match(text):
        if not _NICKNAME_ZH.fullmatch(was) or match["new"] == was:
            return []
        return [Correction(names[0], f"{names[0].text.removesuffix(was)}{match['new']}")]
    match = _PREFERRED_NAME_EN.match(text)
    if match is None or match["new"] == was:
        return []
    alike = was.lower()[:3] in match["new"].lower() or match["new"].lower()[:3] in was.lower()
    if not (alike or restated.is_first_name(match["new"]) or re.search(r"\bcalled\b|\bgo(?:ing)? by\b", text)):
        return []
    return [Correction(names[0], f"{names[0].text.removesuffix(was)}{match['new']}", frozenset(("preference", "name")))]


def _gone_off(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    match = _GONE_OFF_EN.match(text)
    liked = [each for each in held if each.topic in ("preference", "favorite") and not _DISLIKES.search(each.text)]
    return _end(_naming(liked, match["what"])) if match else []


def _operated(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    match = _OPERATED_EN.match(text)
    if match is None or _AHEAD_EN.search(text):
        return []
    return _end(_naming((each for each in held if each.topic == "health"), match["what"] or match["had"]))


def _passed(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    """A plan to be examined ends when it has been passed: the only one, or that of the same subject."""
    chinese = words.CJK_CHARACTER.search(text) is not None
    if not (_PASSED_ZH if chinese else _PASSED_EN).search(text):
        return []
    plans = [each for each in held if each.topic in ("plan", "goal") and _EXAMINED.search(each.text)]
    if chinese:
        return _end(plans) if len(plans) == 1 else []
    matter = _SUBJECT_OF_TEST.search(text)
    named = _naming(plans, matter["what"]) if matter and matter["what"] else plans
    return _end(named) if len(named) == 1 else []


def _graduated(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    if not (_GRADUATED_EN.match(text) or _GRADUATED_ZH.search(text)) or _LONG_AGO.search(text):
        return []
    return _end(
        each
        for each in held
        if each.topic in ("studies", "occupation", "school", "education", "plan")
        and _STUDENT.search(each.text)
        and (each.topic != "plan" or re.search(r"\bgraduat|毕业", each.text))
        and (each.topic != "education" or re.search(r"\b(?:year|student)\b|[大研博][一二三四]|在读", each.text))
        and not (
            each.topic == "studies"
            and _TONGUE.search(each.text)
            and not re.search(r"\b(?:degree|uni|university|college)\b|大学", each.text)
        )
    )


def _instead(text: str, held: Sequence[Held], stated: frozenset[str]) -> list[Correction]:
    match = _INSTEAD_OF_EN.search(text)
    if match is None or not stated & _STARTED:
        return []
    return _end(each for each in _naming(held, match["old"]) if each.topic in stated & _STARTED)


def _coupled(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    if not _COUPLED.search(text):
        return []
    return _end(each for each in held if each.topic == "relationship_status" and _SINGLE.search(each.text))


def _number(text: str, held: Sequence[Held], stated: frozenset[str]) -> list[Correction]:
    if "contact" not in stated:
        return []
    new = re.sub(r"\D", "", text)
    kind = set(_LANDLINE.findall(text))
    return _end(
        each
        for each in held
        if each.topic == "contact"
        and (digits := re.sub(r"\D", "", each.text))
        and digits != new
        and "@" not in each.text
        and kind == set(_LANDLINE.findall(each.text))
    )


_LANDLINE = re.compile(
    r"\b(?:work|office|home|landline|fax|account|booking|order|flight|room|passport)\b|座机|办公|工作|家里"
)


def _only(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    match = (_ONLY_ZH if words.CJK_CHARACTER.search(text) else _ONLY_EN).match(text)
    if match is None:
        return []
    kept, old = (match["kept"], match["old"]) if match["kept"] else (match["kept2"], match["old2"])
    listed = [each for each in held if each.topic in _LISTED]
    topics = {each.topic for each in _naming(listed, kept)}
    return _end((each for each in _naming(listed, old) if each.topic in topics), "preference")


def _work_zh(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    if not _DISMISSED_ZH.search(text) or re.search("差点|险些|怕|会不会", text):
        return []
    return _end(
        each
        for each in held
        if each.topic in _WORK and (each.topic != "occupation" or re.search("在.*(?:做|当|工作)", each.text))
    )


def _edible_zh(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    match = _EATS_AGAIN_ZH.search(text)
    return _eats(match["what"], held) if match and not re.search("如果|要是|希望|什么时候", text) else []


def _stopped_zh(text: str, held: Sequence[Held], _: frozenset[str]) -> list[Correction]:
    match = _STOPPED_ZH.search(text)
    if match is None:
        return []
    done = [each for each in held if each.topic in _PURSUED and re.search(f"(?<!不){match['verb']}", each.text)]
    if len(done) == 1 and match["new"]:
        text = re.sub(f"{match['verb']}[\u4e00-\u9fff]{{0,2}}$", match["new"], done[0].text)
        if text != done[0].text:
            return [Correction(done[0], text, frozenset(("plan", "habit", "activity")))]
    return _end(done) if len(done) == 1 else []


_Rule = Callable[[str, Sequence[Held], frozenset[str]], list[Correction]]
_RULES_EN: tuple[_Rule, ...] = (
    _left_work, _no_allergy, _edible, _intolerance, _moved_kin, _language, _longer, _needless, _name, _gone_off,
    _graduated, _operated, _passed, _instead, _coupled, _number, _only,
)  # fmt: skip
_RULES_ZH: tuple[_Rule, ...] = (
    _work_zh, _no_allergy, _edible_zh, _intolerance, _renamed_kin, _language, _longer, _allowed, _name, _graduated,
    _passed, _coupled, _number, _only, _stopped_zh,
)  # fmt: skip
