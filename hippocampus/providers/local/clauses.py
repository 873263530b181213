"""Clauses of a sentence, and the signs that a clause states nothing about its speaker.

A fact needs a plain statement in the first person. A sentence that is a question, a condition, a wish, a report of what
another says, a quotation, a joke or irony is skipped as a whole: a missed fact will be repeated, a wrong one is
believed. A subject that is left out is supplied: 'Took a trip to Rome' -> 'I took a trip to Rome', and after '我住杭州'
'在医院上班' -> '我在医院上班'.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hippocampus.providers.local import objects, patterns_en, patterns_zh
from hippocampus.providers.local.sentences import Sentence
from hippocampus.text import words

#: A longer sentence is pasted text or a list, and patterns would be slow on it.
SENTENCE_CHARS_MAX = 600

_ADVERB = r"(?:(?:also|now|then|just|recently|finally|actually|already|still|currently|even|usually|sometimes) )*"
#: Past forms that begin a clause whose subject was left out.
IRREGULAR = "|".join(
    words.listed(
        """went took got made met saw bought began ran won lost left quit gave found flew drove rode swam wrote ate
        drank built taught caught chose came had spent sold sent broke hurt grew became felt fell kept paid
        sang wore put read set cut gave was"""
    )
)
_PAST = rf"(?:(?!need|speed|indeed|feed|bleed|breed|hundred|sacred)[a-z]{{2,}}ed|{IRREGULAR})"
#: Participles that say how somebody feels, not what they did.
_FELT = (
    r"(?:excited|tired|bored|interested|worried|scared|surprised|relieved|stressed|thrilled|blessed|used|inspired"
    r"|amazed"
    r"|impressed|overwhelmed|exhausted|supposed|agreed|noted|understood|loved|related|based|finished\W*$|added)"
)
_PRESENT = (
    r"(?:live|work|have|own|play|speak|study|teach|run|drive|prefer|love|like|hate|enjoy|hope|plan|commute|volunteer"
    r"|coach|sing|write|cook|bake|paint|eat|drink|dislike|avoid|keep|go|am|need|collect|sleep|wake)"
)
_NAME_SUBJECT = r"(?-i:[A-Z])[a-z]+ (?:is|works|lives|has|studies|was)"
_SUBJECT = (
    r"(?:I|we|my|our|people|it|he|she|they|you|that|there|every(?! time)|on|his|her|their|the)"
    r"(?:'(?:m|ve|ll|re|s|d))?\b(?!-)"
)
_SPLIT_EN = re.compile(
    r"\s*(?:[;:](?=\s|$)|—|–|\s-+\s|\s--\s?|(?<!\bDr)(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bSt)[.!]+\s)\s*"
    r"|\s+so\s+(?=(?:bullets?|short|no|keep|only|plain|simple|just)\b)"
    r"|,\s+so\s+(?!much|that|far|many|called|is\b|are\b|do\b|am\b|long|what|how|can)"
    r"|,\s+(?=(?:though|although|because)\b)"
    r"|\s+(?:so|and)\s+(?=(?:please|don't|never|can you|could you)\b)"
    rf"|,\s+(?=(?:and|but|so|because|since|plus|though|although|which|when|while)?\s*(?:{_ADVERB})(?:{_SUBJECT}"
    rf"|{_NAME_SUBJECT}))"
    rf"|,?\s+(?:and|but|so|because|since(?!\s+the\s+(?:\d|[a-z]+th\b|start|end|beginning|summer|spring|new))"
    rf"|'cause|cause|plus|though|although|while)\s+(?=(?:also\s+|now\s+"
    rf"|then\s+|currently\s+)?(?:{_SUBJECT}|{_NAME_SUBJECT}))"
    rf"|,?\s+(?:and|but|then|and then)\s+(?={_ADVERB}(?:{_PAST}|{_PRESENT}|no longer|don't|can't|not)\b)"
    r"|,?\s+(?:and|but)\s+(?=(?:absolutely|please|strictly|definitely|also|never|always|no|don't|do not)\b)"
    r"|,\s+(?=(?:now |currently |also )*(?:(?:re)?training|working|living|studying|renting|sharing|teaching"
    r"|learning|dating"
    r"|freelancing|starting|moving)\b)"
    r"|,\s+(?=(?:please|never|don't|no|not|currently|always|maybe|perhaps|hopefully|probably)\b)",
    re.IGNORECASE,
)
_LEAD_EN = re.compile(
    r"^(?:(?:oh|ah|aw+|um+|uh+|er+|hmm+|well|yeah|yes|yep|yup|(?:no|nope|nah)(?=[,.!]| (?:I|we)\b)|ok|okay"
    r"|alright|so|and|but"
    r"|also|btw"
    r"|by the way|fyi|honestly|actually|plus|besides|fun fact|anyway|anyways|thanks|thank you|hey|hi|hello|wow|lol"
    r"|(?:true |small |big )?confession(?: time)?|plot twist|news flash|spoiler|rule for us|look|listen|listen up"
    r"|haha+|sure"
    r"|right|true|cool|nice|great|awesome|perfect|because|since|though|although|as for me|for me|personally|to be"
    r" honest|tbh"
    r"|i mean|you know|definitely|totally|absolutely(?! no\b)|of course|as you know|as i said|as mentioned|these days"
    r"|nowadays"
    r"|lately"
    r"|recently|currently|right now|now|in general|normally|still|same here|me too|sorry|unfortunately|sadly|luckily"
    r"|guess what|(?:good|big|bad|sad|great|exciting|some) news|well then|speaking of which|for work|for what it's"
    r" worth|one more thing|please"
    r" note"
    r"|note|heads up|in fact|meanwhile|basically|apparently|turns out|it turns out|(?:just )?so you know|for context"
    r"|quick (?:note|update|heads[- ]up)|update|remember|keep in mind|just a reminder|reminder|please (?:remember"
    r"|note|keep in mind)|don't (?:ever )?forget(?! to)|then"
    r"|(?:another|one) thing|I (?:must|should|mustn't|shouldn't|ought to|also ought to) (?:not forget|mention|say|add"
    r"|tell you|warn you|remember|note|point out)|I forgot to (?:mention|say|tell you)|let me (?:add|mention)|chiefly"
    r"|mainly"
    r"|(?:i )?(?:just )?wanted to (?:say|mention|tell you)|did I (?:tell you|tell|mention|say)|not sure (?:if"
    r"|whether) i (?:told"
    r"|mentioned) you|did i mention|you should know"
    r"|the (?:truth|thing|fact) is|long story short|first(?:ly|(?=,)| of all| off)|second(?:ly|(?=,))|finally|ps"
    r"|p\.s\.)"
    r"\b(?:,? that\b)?[,!.…:]*\s*)+",
    re.IGNORECASE,
)
_APPOSED_EN = re.compile(rf"\b(?:{patterns_en.KIN.replace('?P<about>', '?:')}|{patterns_en.ANIMAL})$", re.IGNORECASE)
_VOCATIVE_EN = re.compile(r"^[A-Z][a-z]+[,!]\s+(?!my\b)|,\s+[A-Z][a-z]+$")
#: The whole sentence is unreal, long past, or not the speaker's.
_NOT_STATED_EN = re.compile(
    r"^(?:\W*(?:and|but|so|well|oh|ok|okay|now|no|even|only|what|honestly|like)\b)*\W*(?:if"
    r"|unless)\b(?! you (?:were|are) (?:curious|wondering))"
    r"|\b(?:wish|wished|(?<!can you )imagine|pretend|suppose|supposing|hypothetically|let's say"
    r"|reads?(?=:)|lyrics?|quote|joke|joking|kidding|sarcas\w*|dreamt|dreamed|in my dream|in the (?:book|movie|film"
    r"|game|story"
    r"|song)|character|as if|not!|when (?:I|we) (?:was|were)|as a (?:kid|child|teenager)|back then|back in the day"
    r"|growing up"
    r"|in my (?:childhood|youth|twenties|teens))\b|\bnot!?$|/s$|\byeah,? right\b|🙄",
    re.IGNORECASE,
)
#: Only the clause is unreal, over, or of no certain time.
_UNREAL_EN = re.compile(
    r"(?<!know )(?<!see )(?<!wondering )(?<!sure )\bif\b(?! you (?:were|are) (?:curious|wondering))|\bunless\b|"
    r"\b(?:would|could|could've|should've|might|maybe|perhaps|probably|possibly|used to|thought about|whether|almost"
    r"|nearly"
    r"|(?:was|were) (?:going|about|supposed|planning|hoping) to|if only|not sure|no idea|forgot to|feels? like"
    r"|(?:was|were) thinking|(?:been|is) (?:a (?:long )?while|ages|forever|so long|too long|years|months|weeks)"
    r"|tempted)\b"
    r"|'d\b|\bsince (?:I|we) (?:last )?[a-z]+",
    re.IGNORECASE,
)
_LONG_AGO_EN = re.compile(
    r"\b(?:been|'s|is) (?:a (?:long |good )?while|ages|forever|so long|too long|[a-z]+ (?:years|months|weeks))"
    r" since\b.*",
    re.IGNORECASE,
)
#: Introduces what another person says; what precedes it in the sentence is still the speaker's own.
_REPORTED_EN = re.compile(
    r"\b(?:said|says|saying|told|tells|asked(?! [A-Z]\w+ (?:in|on|at|to)\b)|asks|thinks|believes|claims|heard)\b(?!"
    r" (?:you|to|yes\b))",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"[\"“”][^\"“”]*[\"“”]|[「『][^」』]*[」』]|‘[^’]*’(?!\w)")
#: States something, though a question follows.
_SAID_EN = re.compile(
    r"^(?:(?:I|we|my|our)\b|(?:he|she|it)(?:'s| is| was) (?:called|named|born|an? )|(?-i:[A-Z])[a-z]+(?:'s| is| was|"
    r" has) )",
    re.IGNORECASE,
)
_FIRST_EN = re.compile(r"^(?:I|we|I'm|I've|we're|we've|I'll|we'll)\b", re.IGNORECASE)
_CAPTURING_EN = re.compile(r"\b(?:to|can|will|must|should|don't|didn't|won't|never|not|let's|please)\b", re.IGNORECASE)
#: A bare verb after 'I'm going to lie down' is another thing that somebody means to do.
_INTENDING_EN = re.compile(r"\b(?:to|will|'ll|can|could|must|should|let's|would|might|may|'d) [a-z]+\b", re.IGNORECASE)
_BARE_EN = re.compile(rf"{_ADVERB}{_PRESENT}\b", re.IGNORECASE)
_GOES_ON_EN = re.compile(rf"{_ADVERB}(?:{_PRESENT}|no longer|don't|can't)\b", re.IGNORECASE)
_PROGRESSIVE = (
    r"(?:working|living|learning|studying|training|planning|moving|going|flying|heading|starting|getting|visiting"
    r"|expecting|saving|travell?ing|hosting|teaching|thinking (?:of|about)|based|retraining|freelancing|renting|sharing"
    r"|staying"
    r"|doing|seeing|taking|dating|adopting|building|renovating|writing|raising|swimming|running|playing|driving"
    r"|cutting"
    r" (?:down|out)|giving up|waiting for|recovering|allergic|retiring|leaving|joining|volunteering|picking up)"
)
#: What the beginning of a clause without a subject lacks.
_ELLIPSES = (
    (re.compile(rf"^{_ADVERB}(?!{_FELT}){_PAST}\b", re.IGNORECASE), "I "),
    (re.compile(rf"^{_ADVERB}been \w", re.IGNORECASE), "I've "),
    (
        re.compile(
            rf"^{_ADVERB}{_PROGRESSIVE}\b(?!.*\b(?:is|was|are|were|has|helps?|keeps|makes?|can|will|takes|seems"
            rf"|feels)\b)",
            re.IGNORECASE,
        ),
        "I'm ",
    ),
    (
        re.compile(
            rf"^{_ADVERB}(?:(?:severely |highly |very )?allergic to|a (?:huge |big )?fan of|married (?:to|with)"
            rf"|pregnant|vegan\b"
            r"|vegetarian\b|off to"
            r"|(?:c(?:o)?eliac|diabetic|asthmatic|epileptic|dyslexic|autistic|lactose intolerant|left[- ]handed"
            r"|colou?r[- ]?blind|teetotal|retired|divorced|widowed|married|single)(?: too| now| as well| btw|"
            r" again)?$)",
            re.IGNORECASE,
        ),
        "I'm ",
    ),
    (
        re.compile(r"^(?:love|hate|prefer|can't stand|live in|work (?:at|as|for)|really (?:love|like|hate))\b", re.I),
        "I ",
    ),
    (re.compile(r"^born (?:and raised )?in\b", re.IGNORECASE), "I was "),
    (
        re.compile(
            rf"^(?:start|fly|leave|move|finish|sit|back) (?:at|as|in|on|to|out|home|my)\b.*{patterns_en.TIME}",
            re.IGNORECASE,
        ),
        "I ",
    ),
)

_SPLIT_ZH = re.compile(
    r"[，,；;。！!？?：:\s]+|——|…+|(?:但是?|不过|而且|所以|因为|可是|然后|并且|结果)(?=[我咱俺]|也|还|周|每|现在|已经"
    r"|打算)"
)
_LEAD_ZH = re.compile(
    "^(?:嗯+|哦|啊|噢|唉|哎|好的?|是的|对了?|对啊|嘿|你好|谢谢|另外|还有|而且|其实|不过|但是?|所以|因为|然后|说实话"
    "|老实说|说真的|顺便说一下"
    "|顺便提一下|顺便说一句|顺便|总之|那|哈哈+|当然|告诉你|跟你说一?(?:下|声)?|再说一下|忘了说|忘记说|补充一(?:下|点)"
    "|提醒一?下|报告一下|话说|话说回来|说起来"
    "|记一?下|帮我记(?:一?下|住)?|你记(?:一?下|住)|反正|毕竟|就是|结果|原来|终于|上次说|之前说|首先|更新一下"
    "|更正一下)(?=[\u4e00-\u9fff\\w])"
)
_NAMING_ZH = re.compile("(?<=[猫狗兔鱼鼠鹉龟鸟马毛基迪犬牧奇子孩娃儿女宝])[，,](?=(?:名字)?(?:叫|名叫|名字是))")
#: '两个孩子：乐乐、安安' says what they are called.
_NAMES_ZH = re.compile(
    f"(?P<kin>{patterns_zh.COUNT}个(?:孩子|女儿|儿子|小孩|娃|姐姐|妹妹|哥哥|弟弟))[，,：: ]*"
    "(?:名字)?(?:分别)?(?:是|叫)?"
    f"(?={objects.NAME_ZH}(?:[、和跟/]{objects.NAME_ZH})+(?:[。.！!，,]|$))"
)
_ME = "(?:我们|咱们|我|咱|俺)"
_KIN_ZH = (
    f"(?:{patterns_zh.KIN.replace('?P<about>', '?:')}|媳妇儿?|闺女|妈妈?|爸爸?|爹|娘|哥哥?|姐姐?|弟弟?|妹妹?"
    f"|大?表[哥姐弟妹]|同事"
    f"|朋友|老板|领导|家猫|家狗)"
)
#: What somebody said who was spoken of before: '我妈让退队，说中考完再说'.
_SAYING_ZH = re.compile("(?:就|还|又|也)?说(?!话|好|实|真|到|起|不|明|白|错|服|得|定)[^，。]{2,}")
#: '有对象了，重庆姑娘，在幼儿园教音乐' goes on about the partner.
_PARTNER_ZH = re.compile("(?:有|谈|找|交|处)了?(?:个|一个)?(?:对象|女朋友|男朋友|女友|男友)")
_SOMEBODY_ZH = re.compile("(?:是?个?)?[\u4e00-\u9fff]{1,5}(?:姑娘|小伙子?|女孩子?|男孩子?|妹子|人)$")
#: Whom a doctor forbids something is of whom was spoken.
_DOCTOR_ZH = re.compile("(?:医生|大夫)(?:说)?(?:都)?(?:不让|不许|不准|不允许|叫|让)(?=再?(?:吃|喝|抽|碰|沾|戒|忌))")
#: '老公叫陈明，消防员' says what he does.
_KIN_NAMED_ZH = re.compile(f"{_ME}(?:的|家)?(?:大|小|二)?{_KIN_ZH}(?:的名字)?(?:叫|名叫)[^，。]{{1,6}}$")
_BARE_JOB_ZH = re.compile(
    f"(?:是|当|做)?(?:一?[名个位])?(?:退休)?(?![^，。]*[我你您他她它是有在当做找要想跟和说])(?=[^，。]{{2,10}}$){patterns_zh.JOB}$"
)
#: Words for relatives that mean the speaker's own where nobody else is named.
_OWN_KIN_ZH = re.compile(
    "(?=(?:父亲|母亲|媳妇儿?|闺女|老婆|老公|女儿|儿子|闺女|老伴|孙子|孙女|大孙子|爷爷|奶奶|外婆|外公|姥姥|姥爷|老大|老二|老三|婆婆"
    "|公公|岳父|岳母|男朋友|女朋友|男友|女友|弟弟|妹妹|哥哥|姐姐)"
    "(?!们|的|家|说|问))"
)
TIME_ZH = (
    "(?:现在|目前|最近|其实|今年|去年|前年|明年|上个?月|下个?月|上周|下周|昨天|今天|明天|后天|前天|刚刚?|已经|从小"
    "|平时|一直|周末|每天|每周)"
)
_SUBJECT_ZH = re.compile(f"{TIME_ZH}*{_ME}(?!{_KIN_ZH}|[的家]|同)")
_KIN_SUBJECT_ZH = re.compile(f"{TIME_ZH}*(?P<kin>{_ME}(?:的|家)?(?:大|小|二)?{_KIN_ZH})")
_OTHER_SUBJECT_ZH = re.compile(
    f"(?:他|她|它|你|大家|人家|别人|对方|这|那|{_KIN_ZH}|[\u4e00-\u9fff]{{1,4}}(?:老师|医生|总|经理|同学|先生|女士))"
)
#: A person who is called by a name: '阿毛走了', '小宋说', '李姐回老家了'.
NAME_ZH = (
    "(?:阿(?!姨)[\u4e00-\u9fff]|小(?!姨|时|区|孩|心|声|学|票|朋|姐|伙|事|说|型|组|店|半|龙|家|年|长|名|的|吃|睡|赚)[\u4e00-\u9fff]"
    "|老(?!家|是|师|板|婆|公|伴|人|实|了|爸|妈|大|二|三|幺|天|头|乡|早|年|客|总|妹|弟|哥|姐|想|不|去|爱|喜|样|城|房|毛|豆)"
    "[\u4e00-\u9fff]|(?![大小二三四][姨叔])[\u4e00-\u9fff][姐哥姨叔婶](?![姐妹哥弟们夫])|(?!我)[\u4e00-\u9fff](?:总|老师|经理|主任|医生))"
)
OTHERS_ZH = re.compile(
    f"{NAME_ZH}"
    "(?:[也又就已经都刚还要会想]|昨天|今天|明天|上周|上个?月|去年|今年)*"
    "(?=[走去来说在是辞回调搬把给生结离病住开考买卖换升被跟和有做当教学读嫁娶退])"
)
#: Asks, without a question mark.
_ASKING_CLAUSE_ZH = re.compile(
    "^(?!.*(?:没|随便|不管|无论|不论|不知道|不记得))(?:.*(?:什么|啥|谁|哪[儿里个]?|怎么样?|咋|为什么|为啥|几[岁个点号月]|多少"
    "|多大|多久|多远)(?!.*[都也]))"
)
SUBJECTLESS_ZH = re.compile(
    f"(?!叫我|不要|别|不准|不许|不能[在给]|请|麻烦|记得|会不会)(?:{TIME_ZH}|还是?|也|都|就|转头|后来|干脆|自己|真的?"
    f"|特别"
    f"|非常"
    f"|超级?|比较|很|挺|最|又|终于|打算|准备|计划|决定)*"
    f"(?:开始(?=[^，。]{{0,3}}(?:{patterns_zh.SPORT}|锻炼|运动|减肥|节食|冥想|早起|晨跑|晨练|私教|力量训练|记账))"
    "|在|调|转|盘|添|过|评|拿|通过|落|获|是|住|喜欢|不|爱|讨厌|对|养|有|每|打算|准备|计划|来自|最|已经|特别|超|搬"
    "|换|入职|跳槽|辞|离职|结婚|离婚|订婚|怀孕|生了|去了?|买了?|租|学|报名|报了"
    "|考|吃素|戒|过敏|信|会|毕业|退休|当|做|开了|加入|参加|收养|领养|从|今年|属|姓|叫|要|想|周|明|后天|约|订|定|得|患"
    "|确诊|受不了|怕|习惯|经常|喝|吃|迷上|爱上)"
)
_NOT_STATED_ZH = re.compile(
    "如果|要是|假如|假设|万一|的话|倘若|本来想|小时候|差点|差一点|开玩笑|才怪|梦见|梦到|电影里|小说里|书里|歌词|游戏里"
    "|可能会|也许|说不定|恨不得|是否|好像|要不要|是不是|有没有|能不能|该不该|希望能|不知道|要不|想象|多想|真想"
)
_GOES_ON_ZH = re.compile("(?:顺便|然后)?(?:带|陪|去|到|飞|给|和|跟|在)(?!年)")
_FILLERS_ZH = frozenset(("对", "嗯", "好", "是", "行", "没", "不", "有", "会", "要", "想", "爱", "怕"))
#: Said to the other, in passing: '我恐高你可得拉着我'.
_ASIDE_ZH = re.compile("(?<=..)你(?:忘了|记得吧|可得?.*|又不是不知道|也?知道的?|懂的|敢信)$|(?<=..)(?:行不行|不行吗)$")
#: '跟同事合租，在静安寺附近' is one statement.
_WHERE_ZH = re.compile("(?:就)?在(?!.*(?:上班|工作|[读教]书|当|做|学|实习|干))[\u4e00-\u9fff]{2,7}$")
_PLACED_ZH = re.compile("住|租|搬|上班|工作|[开读]了?|公司|店")
_INTENDS_ZH = re.compile(f"打算|计划|准备|决定|原定|想(?:去|在|暑假|寒假)|{patterns_zh.TIME}.*(?:去|回|飞|走|请)")
_PAST_ZH = re.compile("曾经|以前|之前(?=[^说])|过去|原来住|原先")
_REPORTED_ZH = re.compile(
    "听说|据说|有人说|[^我]{1,6}(?:跟|对)我(?:说|讲)(?!好)|(?<![跟和对给])[他她你]们?(?:说|问|觉得|以为|认为"
    "|告诉)|(?:妈|爸|老板(?!说(?:要|让|给)*我|说要)"
    "|同事|朋友|老婆|老公|妹妹"
    "|姐姐|哥哥|弟弟"
    "|老师)(?:妈|爸)?(?:说|问|觉得|告诉|总说)"
)


#: Dialect, polite and casual spellings, in the words that the patterns know.
_SPELLING_ZH = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        ("咱们|俺们", "我们"),
        ("[咱俺]", "我"),
        ("(?:我)?(?:屋头|屋里头)", "我家"),
        ("莫(?=喊|叫|要|给|放|加|说|吃|写|用)", "别"),
        ("喊(?=我|[你您])", "叫"),
        ("(?<![叫喊称用])您", "你"),
        ("(?:我)?家父|(?:我)?家严", "我父亲"),
        ("(?:我)?家母|(?:我)?家慈", "我母亲"),
        ("小女(?!孩|生|友|人|儿)", "我女儿"),
        ("犬子|小儿(?!子)", "我儿子"),
        ("内人|拙荆", "我妻子"),
        ("(?<!个)(?:我)?闺女|(?:我)?姑娘(?=在|叫|今年)", "我女儿"),
        ("老伴儿", "老伴"),
        ("(?<=我)(?:家)?(?:那)?老伴", "老伴"),
        ("我(?:的|家)?(妈|爸|哥|姐|弟|妹)(?!妈|爸|哥|姐|弟|妹|夫|媳)", "我\\1\\1"),
        ("(?:一)?[只条个]毛孩子", "一只宠物"),
        ("(?:今儿个|今儿)", "今天"),
        (
            "(?<![\u4e00-\u9fff])(上个?月|上周|上个?星期|去年|前年|昨天|前天|前几天|最近|现在|目前|年初)(我们"
            "|我)(?!的"
            "|家)",
            "\\2\\1",
        ),
        ("(?<![\u4e00-\u9fff])请?(?:你)?记(?:住|得)(?:一下)?(?=我)", ""),
        ("得意(?=这|吃|喝)", "喜欢"),
        ("了啦|啦", "了"),
    )
)
#: Cantonese in the words that the patterns know, in texts that have a character of `_CANTONESE`.
_SPELLING_CANTONESE = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        ("唔(?:系|係)", "不是"),
        ("唔好", "不要"),
        ("唔使", "不用"),
        ("唔(?:该|該)", "谢谢"),
        ("[唔]", "不"),
        ("嘅|噶", "的"),
        ("喺", "在"),
        ("咗", "了"),
        ("佢哋", "他们"),
        ("佢", "他"),
        ("冇", "没有"),
        ("啲", "些"),
        ("嘢", "东西"),
        ("俾|畀", "给"),
        ("搵", "找"),
        ("(?:宜|而|依)家", "现在"),
        ("钟意|鍾意", "喜欢"),
        ("(?<![关联])(?:系|係)(?![统列数])", "是"),
        ("饮", "喝"),
        ("(?<![美粮零饮素主])食(?![物品堂材])", "吃"),
        ("返(?:屋企)", "回家"),
        ("返", "回"),
        ("嚟", "来"),
        ("哋", "们"),
        ("仔仔|我个仔|阿仔", "我儿子"),
        ("囡囡|我个女(?!儿)|阿女", "我女儿"),
        ("老豆", "爸爸"),
        ("老母", "妈妈"),
        ("细佬", "弟弟"),
        ("家姐", "姐姐"),
        ("走甩", "走丢"),
        ("朝早", "早上"),
        ("听日", "明天"),
        ("寻日|琴日", "昨天"),
        ("今日", "今天"),
        ("倾(?:计|偈)", "聊天"),
        ("点(?=[推做解样])", "怎么"),
        ("仲(?![裁夏])", "还"),
        ("屋企", "家"),
        ("老细", "老板"),
        ("执笠", "倒闭"),
        ("份工", "工作"),
        ("睇", "看"),
        ("一滴都不掂", "一滴都不喝"),
        ("我个(?=[一-龥])", "我"),
        ("[㗎啫喎嘞噃啩咩]$", ""),
    )
)
_CANTONESE = re.compile("[嘅喺咗唔佢冇啲嘢俾搵哋嚟㗎]|宜家|钟意")
_SELF_REPAIR_ZH = re.compile(
    "[，,。…]*(?:哦|啊|唉|呃|嗯)?(?:不对|等等|等下)?[，,]?(?:(?:我)?(?:说|记|写|打|看|搞|弄)(?:错|岔|反|混)了?)?[，,]?"
    "(?:不是|唔系)(?P<old>[\u4e00-\u9fff\\d]{1,8})[，,](?:而)?是(?P<new>[\u4e00-\u9fff\\d]{1,10}?)(?=[，,。！]|$)"
)


#: The clause before '不对，是…' is replaced by what follows, unless that is a time.
_TAKEN_BACK_ZH = re.compile(
    f"(?:^|(?<=[，。]))[^，。]+，(?:哦|啊|呃)?(?:不对|不是|(?:说|讲|写|打)错了?)，(?=(?:应该)?是(?!{patterns_zh.TIME}|{patterns_zh.NUMBER}))"
)


def _repaired_zh(text: str) -> str:
    """Return what a sentence says after its speaker put it right: '元旦演出，说错了，不是元旦，是校庆'."""
    text = _TAKEN_BACK_ZH.sub("", text)
    match = _SELF_REPAIR_ZH.search(text)
    if match is None or match["old"] not in text[: match.start()]:
        return text
    place = text[: match.start()].rfind(match["old"])
    said = text[:place] + match["new"] + text[place + len(match["old"]) : match.start()]
    return said + text[match.end() :]


#: Asks for a text: what follows is in it.
_REQUEST_ZH = re.compile(
    "(?:帮|替|给)我?(?:写|编|拟|起草|润色|改写|续写|翻译)(?!代码.{0,4}(?:别|不))|^(?:请|麻烦)?(?:写|编|拟|起草"
    "|翻译|润色|续写)"
    r"(?:一|个|段|首|篇|封|条|下|成|\d|这)|翻译(?:呢|这|下)?句|主角[叫是]"
)
_PARTICLES_ZH = re.compile("(?:[啊呀呢嘛哦喔哈咯呗哟噢哒滴吖耶]|来着|哈哈+|跟你说|告诉你|我?跟你讲)+$")


_PAST_OF = {"hav": "had", "gett": "got", "get": "got", "buy": "bought", "los": "lost", "find": "found", "mov": "moved"}


def _perfect(match: re.Match[str]) -> str:
    """Return 'I'm after starting' as 'I've started'."""
    have = "'ve" if match[1] != "'s" else "'s"
    return f"{have} {_PAST_OF.get(match[2], match[2] + 'ed')}"


#: Casual spellings, in the words that the patterns know.
_SPELLING_EN: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), word)
    for pattern, word in (
        (r"\bthe (wife|missus|hubby|husband|mrs)\b", r"my \1"),
        (r"\bmissus\b", "wife"),
        (r"('m|'s|'re) after (start|mov|join|open|order|hav|gett|buy|los|find)(?:t?ing)\b", _perfect),
        (r"\bim\b", "I'm"),
        (r"\bive\b", "I've"),
        (r"\b(do|does|did|ca|wo|is|was|are|have|has|had|would|should|could)nt\b", r"\1n't"),
        (r"\bcannot\b", "can't"),
        (r"\bif you (?:please|don't mind|wouldn't mind)\b", "please"),
        (r"\bain't\b", "isn't"),
        (r"\bu\b(?!\.)", "you"),
        (r"\bur\b", "your"),
        (r"\br\b(?= )", "are"),
        (r"\b(?:n|&)\b(?= )", "and"),
        (r"\b(?:pls|plz|plss)\b", "please"),
        (r"\b(?:tmrw|tmr|tomoz)\b", "tomorrow"),
        (r"\bbday\b", "birthday"),
        (r"\b(?:lil|lil')(?= )", "little"),
        (r"\b(s?he|that|there|who)s\b(?! )?", r"\1's"),
        (
            r"\bmy (dad|mom|mum|sister|brother|boyfriend|girlfriend|bf|gf)s (?=(?:in|an?|at|not|going|getting|the|from"
            r"|working|coming)\b)",
            r"my \1's ",
        ),
        (r"\bguess who(?:'s| has) (?=(?:just |finally )?(?:been|got|bought|passed|moved)\b)", "I've "),
        (r"\b(?:hubby|hubs)\b", "husband"),
        (r"\bbf\b", "boyfriend"),
        (r"\bgf\b", "girlfriend"),
        (r"\b(?:coz|cuz|bc)\b", "because"),
        (r"\bgonna\b", "going to"),
        (r"\bwanna\b", "want to"),
        (r"\babt\b", "about"),
        (r"\byrs\b", "years"),
        (r"\bmins\b", "minutes"),
        (r"\buni\b", "university"),
        (r"\btho\b", "though"),
        (r"\bit's been decided\b", ""),
        (r"[\U0001F000-\U0001FAFF\u2600-\u27BF\uFE0F]+", " . "),
        (r"\s+(?:lol|lmao|haha+|omg|fr|smh|ngl|idk|tbh|imo|xd|:\)|;\)|:d)(?=$|[\s.,!?])", ""),
    )
)
#: Scots spellings, which occur in texts that have one of the words of `_SCOTS`.
_SPELLING_SCOTS = tuple(
    (re.compile(rf"\b{pattern}", re.IGNORECASE), word)
    for pattern, word in (
        (r"ah(?='|\s+[a-z])", "I"),
        (r"ma(?=\s)", "my"),
        (r"cannae\b", "can't"),
        (r"(did|do|does|is|was|would|could|should|have|has|wi|win|dis|di|din)nae\b", r"\1n't"),
        (r"nae\b", "no"),
        (r"(?:naw|nah)\b", "no"),
        (r"tae\b", "to"),
        (r"intae\b", "into"),
        (r"(?:fae|frae)\b", "from"),
        (r"wi\b", "with"),
        (r"oot\b", "out"),
        (r"aff\b", "off"),
        (r"noo\b", "now"),
        (r"dae\b", "do"),
        (r"yer\b", "your"),
        (r"ye\b", "you"),
        (r"ower\b", "over"),
        (r"o\b(?!')", "of"),
        (r"aye,?\s", ""),
        (r"dug\b", "dog"),
        (r"hame\b", "home"),
        (r"hoose\b", "house"),
        (r"mair\b", "more"),
        (r"auld\b", "old"),
        (r"wan\b", "one"),
        (r"toon\b", "town"),
        (r"tellt\b", "told"),
        (r"(start|kill|want)it\b", r"\1ed"),
        (r"lassie\b", "girl"),
        (r"bairns?\b", "kids"),
        (
            r"(\w{3,})(?<=[a-z]{3})in(?= |'|$)(?<!again)(?<!begin)(?<!captain)(?<!certain)(?<!mountain)(?<!cousin)",
            r"\1ing",
        ),
    )
)
_SCOTS = re.compile(
    r"\b(?:tae|intae|noo|(?:can|did|do|is|was|would)nae|fae|frae|oot|aff|dae|wee|yer|ah(?:'ve|'m| cannae))\b",
    re.IGNORECASE,
)
#: A word of the table above: most texts have none.
_CASUAL_EN = re.compile(
    r"\b(?:i[mv]e?|after [a-z]+ing|the (?:wife|missus|hubby|husband|mrs)|ain't|(?:do|does|did|ca|wo|is|was|are"
    r"|have|has|had|would|should|could)nt|cannot|if you (?:please|don't mind|wouldn't mind)|ur?|[rn&]|plz|plss?"
    r"|guess who|tmr\w?|tomoz|lil|s?hes|theres|whos|thats|(?:dad|mom|mum|sister|brother|boyfriend|girlfriend)s"
    r"|bday|hub\w+"
    r"|[bg]f|co?uz|coz|bc|gonna|wanna|abt|yrs|mins|uni|tho|lo?l|lmao|ha(?:ha)+|omg|fr|smh|ngl|idk|tbh|imo|xd)\b|:\)"
    r"|;\)|:d",
    re.IGNORECASE,
)
#: Characters of a clause in which its tail is looked for.
_TAIL_CHARS_MAX = 60
#: What adds nothing at the end of a clause.
_TAIL_EN = re.compile(
    r"(?:,|\s)+(?:btw|by the way|fyi|you know|you see|anyway|anyways|though|tho|please(?! don't)|haha+|actually|to be"
    r" honest|to be fair|honestly"
    r"|would you believe(?: it)?|can you imagine|believe it or not|thank you(?: very much)?|thanks(?: a lot| so"
    r" much)?|cheers|thank"
    r" (?:god|goodness)|fingers crossed"
    r"|just so you know|in case you(?:'re| are) wondering|of course|sadly|unfortunately|luckily|I'm (?:afraid|pleased"
    r" to say|happy to say|sorry to say)"
    r"|I (?:think|guess|suppose|believe|reckon|must say|have to say)|as (?:you know|I said|it happens)|if you must"
    r" know|right now|at the moment|for what it's worth"
    r"|(?:the|my) (?:doctor|gp|dentist|vet|nurse|consultant|physio|optician|specialist) (?:says?|said|told me)|(?:can"
    r"|would) you believe it|I swear|or so|and all that|and so on|mind you|dear|mate|love|bro)"
    r"[.!… ]*$",
    re.IGNORECASE,
)
_ASKING_EN = re.compile(
    r"^(?P<said>.{8,}?)[,.;]\s+(?:(?:so|and|but|then|now)\s+)?(?:what|how|where|when|who|which|why|can|could|should"
    r"|shall|do|does|did|is|are|will|would|any|anything|got|have)\b[^,;]*$",
    re.IGNORECASE,
)
_ASKING_ZH = re.compile("^(?P<said>.{4,})[，,；;](?P<asked>[^，,；;]*)$")
_WORD_OF_ASKING_ZH = re.compile(
    "[吗呢?？]|什么|怎么|咋|啥|哪|多少|几|谁|能不能|是不是|要不要|好不好|行不行|可不可以|有没有|为何|如何"
)
#: Said in passing, within a sentence or at its end.
_ASIDE_EN = re.compile(
    r",? (?:would you believe(?: it)?|can you (?:imagine|believe it)|believe it or not|as it were|if you(?:'re| are)"
    r" (?:asking|interested"
    r"|suggesting|wondering|curious)\b[^,.]*|if you (?:must|want to) know)(?=[,.!?]|$)",
    re.IGNORECASE,
)
#: 'I'm Sky, a designer, currently in Lisbon' is three statements.
_INTRODUCED_EN = re.compile(
    rf"\bI'm {patterns_en.NAME}(?:, (?!I\b|and\b|but\b|so\b|nice\b|by\b|my\b|the\b|how\b|what\b|can\b|we\b)[\w/'"
    rf" -]{{3,40}}){{1,4}}(?=[.!]|$)"
)
#: 'my boyfriend Caio he is in Recife' goes on with him.
_RUN_ON_EN = re.compile(
    rf"\b(?P<who>(?i:my|our) {patterns_en.KIN_MODIFIER}{patterns_en.KIN.replace('?P<about>', '?:')}"
    rf"(?: {patterns_en.NAME})?)"
    r",? (?=(?:he|she)(?:'s| is| was| has| works| lives| studies| moved| got)\b)"
)
#: 'the piano and the violin' is one object, not two clauses.
_AND_THE_EN = re.compile(
    rf" and the (?=(?:{patterns_en.INSTRUMENTS}|[A-Z]\w+(?: [A-Z]\w+)*)(?:[.,;!]|$| (?:in|too|as|twice|once)\b))"
)
#: 'three kids: Mia, Noah and Ben' says what they are called.
_NAMES_EN = re.compile(
    rf"\b(?P<who>(?i:kids|children|sons|daughters|boys|girls|twins|sisters|brothers|siblings))(?: ?[:–—(]| -) ?"
    rf"(?={patterns_en.NAMES}(?:[.;!)]|$))"
)
_FRONTED_EN = re.compile(
    r"^(?P<time>(?:as of|since|for|from|until|after|before|in|on|at|this|next|last|over) (?!I\b|we\b"
    r"|my\b)[\w' -]{2,30}?"
    r"|yesterday|tomorrow|tonight|today),? (?=(?:I|we|I'm|we're|I've|we've|I'll|we'll) )",
    re.IGNORECASE,
)
#: 'Ada and I live in Rome', but not 'my name is Ada and I live in Rome': only where a clause begins.
_TOGETHER_EN = re.compile(
    r"(?:^|(?<=[.!?,;:] )|(?<=\b(?:so|as) )|(?<=\byesterday )|(?<=\b(?:last|this) (?:week|year) ))"
    r"(?:me and (?:[\w']+ ){1,5}?"
    r"|(?:my (?!\w+ (?:is|was|and)\b)[\w' ]{2,30}?|[A-Z]\w+(?:(?:,| and) [A-Z]\w+)*) and (?:I|me) )"
    r"(?=(?:are|were|have|had|got(?! (?:engaged|married))|will|went|'re|'ve|started|booked|moved|bought|live|did|do"
    r"|just|both|also)\b)"
)
#: What a doctor says of the speaker is so: 'Dr Patel says I'm allergic to latex'.
_DIAGNOSED_EN = re.compile(
    r"^(?:(?:my|the|our) (?:doctor|gp|dentist|nurse|consultant|physio|optician|specialist)|Dr\.? (?-i:[A-Z])[a-z]+)"
    r" (?:just |now )?(?:says?|said|told me|confirmed|found)(?: that)? (?=(?:I'm|I am|I have|I've got|my)\b)",
    re.IGNORECASE,
)


def of_sentence(sentence: Sentence) -> Iterator[str]:
    """Yield the clauses of a sentence; none if it states nothing about its speaker."""
    text = sentence.text
    if sentence.is_question:
        text = _said_before_asking(text, chinese=sentence.is_cjk)
    if text:
        yield from of_text(
            text, chinese=sentence.is_cjk, speaks=sentence.is_cjk or not _goes_on_about_another(sentence)
        )


def _said_before_asking(text: str, *, chinese: bool) -> str:
    """Return what a question states before it asks: 'I drink only decaf, so what do I order?'"""
    match = (_ASKING_ZH if chinese else _ASKING_EN).match(text.rstrip("?？! "))
    if match is None:
        return ""
    if chinese:
        pieces = [piece for piece in re.split("[，,；;]", match["said"]) if piece]
        return "，".join(pieces) if not any(_WORD_OF_ASKING_ZH.search(piece) for piece in pieces) else ""
    said = match["said"]
    return said if _SAID_EN.match(without_lead(said)) and "?" not in said else ""


#: A sentence about another person.
_ANOTHER_EN = re.compile(
    r"^(?i:(?:(?:and|but|so|oh|well|yeah|no),? )*(?:he|she|they|his|her|their))(?:'[a-z]+)?\b"
    r"|^(?!(?:I|It|That|This|There|Here|What|Who|Where|When|How|Why|Today|Tonight|Yesterday|Tomorrow|Work|School|Uni"
    r"|Life|Everything|Nothing|Something|Weather|News|Home|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)\b)"
    r"[A-Z][a-z]+(?:'s| is| was| has| got)\b"
)


def _goes_on_about_another(sentence: Sentence) -> bool:
    """Return whether the sentence before, in the same turn, speaks of another: 'She came. Changed her mind.'"""
    return _ANOTHER_EN.match(sentence.before) is not None


def of_text(text: str, *, chinese: bool, speaks: bool = True) -> Iterator[str]:
    """Yield the clauses of a sentence that is not a question.

    Args:
        speaks: an English clause that begins without a subject is the speaker's.
    """
    if len(text) > SENTENCE_CHARS_MAX:
        return
    text = " ".join(_unquoted(text).split())
    if chinese:
        if not _NOT_STATED_ZH.search(text):
            yield from _chinese(text)
    elif not _NOT_STATED_EN.search(_ASIDE_EN.sub(" ", text)):
        yield from _english(text, speaks=speaks)


def is_unreal(text: str) -> bool:
    """Return whether an English sentence is a condition, a wish, a joke or a story."""
    return bool(_NOT_STATED_EN.search(text) or _REPORTED_EN.search(text))


def whole(text: str, *, chinese: bool) -> str:
    """Return a sentence in the words that the patterns know, without what opens and ends it."""
    text = " ".join(_unquoted(text).split())
    if not chinese:
        return without_lead(spelled_out(text))
    if _CANTONESE.search(text):
        for spelling, word in _SPELLING_CANTONESE:
            text = spelling.sub(word, text)
    for spelling, word in _SPELLING_ZH:
        text = spelling.sub(word, text)
    while (shorter := _LEAD_ZH.sub("", text)) != text:
        text = shorter
    return _PARTICLES_ZH.sub("", text.strip(" ，,。！!~～"))


def without_lead(clause: str) -> str:
    """Return an English clause without greetings, fillers and a name that it begins or ends with."""
    clause = clause.strip(" ,.!…*~")
    for pattern in (_LEAD_EN, _VOCATIVE_EN, _LEAD_EN):
        shorter = pattern.sub("", clause).strip(" ,.!…")
        if shorter != clause and not (pattern is _VOCATIVE_EN and _APPOSED_EN.search(shorter)):
            clause = shorter
    return _without_tail(clause)


def _without_tail(clause: str) -> str:
    while shorter := _TAIL_EN.sub("", clause[-_TAIL_CHARS_MAX:]):
        kept = clause[:-_TAIL_CHARS_MAX] + shorter
        if kept == clause:
            break
        clause = kept
    return clause


def spelled_out(text: str) -> str:
    """Return an English text in the spelling that the patterns know."""
    if _SCOTS.search(text):
        for spelling, word in _SPELLING_SCOTS:
            text = spelling.sub(word, text)
    if _CASUAL_EN.search(text) or not text.isascii():
        for spelling, said in _SPELLING_EN:
            text = spelling.sub(said, text)
    return text


def _unquoted(text: str) -> str:
    """Remove quoted speech, which is another's; keep a quoted title or name without its quotation marks."""

    def keep(match: re.Match[str]) -> str:
        inner = match[0][1:-1]
        speaks = re.search(r"\b(?:I|my|we|you|don't|never)\b|[我你]|不要|别", inner, re.IGNORECASE)
        return " … " if speaks or len(inner) > 60 else inner

    return _QUOTED.sub(keep, text.replace("’", "'"))


def _english(text: str, *, speaks: bool) -> Iterator[str]:
    text = _DIAGNOSED_EN.sub("", _TOGETHER_EN.sub("we ", _ASIDE_EN.sub(" ", spelled_out(text))))
    before = ""
    text = _RUN_ON_EN.sub(r"\g<who>; ", text)
    text = _AND_THE_EN.sub(" and ", text)
    text = _NAMES_EN.sub(r"\g<who> called ", text)
    text = _INTRODUCED_EN.sub(lambda match: match[0].replace(", ", ", I'm "), text)
    for piece in _SPLIT_EN.split(_LONG_AGO_EN.sub("", text)):
        if _REPORTED_EN.search(piece) and _REPORTED_EN.search(_without_tail(piece.rstrip(" .!"))):
            return
        clause = without_lead(piece)
        if not clause:
            continue
        if fronted := _FRONTED_EN.match(clause):
            clause = f"{clause[fronted.end() :]} {fronted['time']}"
        bare = _subject_lacks(clause, speaks=speaks, before=before)
        if bare is None:
            speaks = bool(_FIRST_EN.match(clause))
        else:
            clause = bare + (clause[0].lower() + clause[1:])
        before = clause
        if not _UNREAL_EN.search(clause):
            yield clause


def _subject_lacks(clause: str, *, speaks: bool, before: str) -> str | None:
    """Return what a clause without a subject lacks; None if it has its own, or is not the speaker's."""
    if not speaks:
        return None
    intends = before and _INTENDING_EN.search(before)
    for pattern, subject in _ELLIPSES:
        if pattern.match(clause):
            return None if intends and _BARE_EN.match(clause) else subject
    goes_on = before and _FIRST_EN.match(before) and not _CAPTURING_EN.search(before)
    return "I " if goes_on and _GOES_ON_EN.match(clause) else None


def _chinese(text: str) -> Iterator[str]:
    subject = "我"
    kin = ""
    others = False
    if _CANTONESE.search(text):
        for spelling, word in _SPELLING_CANTONESE:
            text = spelling.sub(word, text)
    text = _repaired_zh(text)
    for spelling, word in _SPELLING_ZH:
        text = spelling.sub(word, text)
    before = ""
    text = _NAMES_ZH.sub("\\g<kin>叫", text)
    for piece in _SPLIT_ZH.split(_NAMING_ZH.sub("", text)):
        if _REPORTED_ZH.search(piece) or _REQUEST_ZH.search(piece):
            break
        clause = piece.strip(" ~～、")
        while (shorter := _LEAD_ZH.sub("", clause)) != clause:
            clause = shorter
        clause = _ASIDE_ZH.sub("", _PARTICLES_ZH.sub("", clause))
        if not clause or clause in _FILLERS_ZH:
            continue
        he = clause[0] in "他她" and not clause.startswith(("他们", "她们"))
        if he and kin and patterns_zh.may_mean(clause[0], kin):
            clause = kin + clause[1:]
        elif subject and _OWN_KIN_ZH.match(clause):
            clause = f"我{clause}"
        if kin and before and _KIN_NAMED_ZH.match(before) and _BARE_JOB_ZH.match(clause):
            clause = f"{kin}{'' if clause.startswith(('是', '当', '做')) else '是'}{clause}"
        if _SAYING_ZH.match(clause) or (others and not _SUBJECT_ZH.match(clause) and not _KIN_SUBJECT_ZH.match(clause)):
            continue
        others = bool(_PARTNER_ZH.search(before) and _SOMEBODY_ZH.match(clause))
        if others:
            continue
        if told := _DOCTOR_ZH.match(clause):
            clause = f"{told[0]}{subject or '他'}{clause[told.end() :]}"
        if own := _KIN_SUBJECT_ZH.match(clause):
            subject = kin = own["kin"]
        elif _SUBJECT_ZH.match(clause):
            subject = "我"
        elif _OTHER_SUBJECT_ZH.match(clause) or OTHERS_ZH.match(clause):
            subject = ""
        elif subject == "我" and _GOES_ON_ZH.match(clause) and _INTENDS_ZH.search(before):
            # One plan in several verbs: '打算五一请假，带我妈去重庆'.
            before += clause
            continue
        elif before and _WHERE_ZH.match(clause) and _PLACED_ZH.search(before):
            before += clause
            continue
        elif (
            subject
            and SUBJECTLESS_ZH.match(clause)
            and not (before and subject == "我" and clause.startswith(("叫", "名叫", "姓")))
        ):
            clause = subject + clause
        if before and _states_zh(before):
            yield before
        before = clause
    if before and _states_zh(before):
        yield before


def _states_zh(clause: str) -> bool:
    return not (_PAST_ZH.search(clause) or _ASKING_CLAUSE_ZH.match(clause))
