"""Chinese fact patterns, tried in order at the start of each clause; the first of a topic wins."""

from __future__ import annotations

from hippocampus.providers.local.patterns import chinese
from hippocampus.text import words

KIN = (
    "(?P<about>妻子|老婆|丈夫|老公|先生|太太|爱人|男朋友|女朋友|男友|女友|未婚妻|未婚夫|女儿|儿子|孩子|姐姐|妹妹|哥哥"
    "|弟弟|爸爸|妈妈|父亲|母亲|爷爷|奶奶|外公|外婆|姥姥|姥爷|室友)"
)
ANIMAL = "(?:小猫|小狗|猫咪|狗狗|猫|狗|兔子|仓鼠|鹦鹉|乌龟|金鱼|龙猫|豚鼠|马)"
COUNT = "(?:一|两|三|四|五|俩|仨|\\d)"
JOB = (
    "[^，。的]{0,10}?(?:工程师|程序员|设计师|老师|教师|医生|护士|律师|会计|会计师|厨师|司机|记者|编辑|翻译|作家|画家"
    "|演员|歌手|摄影师|销售|经理|产品经理|学生|大学生|研究生|博士生|公务员|警察|教授|研究员|店长|咖啡师|药剂师|建筑师"
    "|分析师|顾问|主管|自由职业者|心理咨询师|教练|农民|工人|创业者|兽医)"
)
DAY = "(?:周|星期|礼拜)[一二三四五六日天末]"
TIME = (
    "(?:明天|后天|今晚|明晚|周末|这周末|下周末|下周[一二三四五六日天末]?|这周[一二三四五六日天末]?|下个?月|这个?月|月底"
    "|年底|明年|今年|后年|春节|国庆|五一|中秋|暑假|寒假|过年|过两天|过几天|[一二三四五六七八九十\\d]+月(?:份|底|初)?"
    f"|{DAY})"
)
EVERY = (
    "(?:每天(?:早上|晚上|中午|下午|早晨|睡前)?|每(?:个)?(?:早上|晚上|早|晚|周末|月|年)"
    f"|每{DAY}|每周|每个{DAY}|{DAY}(?:早上|晚上)?都)"
)

# Tables, read by row.
# fmt: off
IDENTITY = (
    chinese("name", "profile",
        "(?:我叫|我的名字(?:叫|是)|(?:你)?(?:可以)?(?:就)?叫我)(?P<object>[^，。的]{1,12}?)"
        "(?:就行|就好|吧|好了|就可以)?$", "名叫{object}", "name", 0.95, single=True),
    chinese("age", "profile", "我~(?:今年)?(?:满)?(?P<object>\\d{1,2}|[一二三四五六七八九十]{1,3})岁(?:了)?$",
        "{object}岁", "plain", 0.95, single=True),
    chinese("birthday", "profile", "我的?生日(?:是|在)(?P<object>[^，。]{2,12}?)$", "生日是{object}", "plain",
        0.95, single=True),
    chinese("relationship_status", "profile", "我~(?P<object>结婚|离婚|订婚|单身)了?(?:[^，。]{0,6})$",
        "{object}", "plain", 0.9, single=True),
)
PLACES = (
    chinese("home", "profile",
        "(?:我|我们|我家)~(?:住在|住|定居在|定居|搬到了?|搬去了?|搬家到了?|搬来了?|搬回了?)"
        "(?P<object>[^，。的了过]{2,15}?)(?:了|这边|那边|生活|工作|住|的(?:老城区|市中心|城区|郊区|[东西南北]边))?$",
        "住在{object}", "place", 0.95, single=True),
    chinese("origin", "profile",
        "我~(?:来自|老家(?:是|在)|出生(?:在|于)|从小在|是从)(?P<object>[^，。的]{2,12}?)(?:来的|长大的?|人)?$",
        "来自{object}", "place", 0.95, single=True),
    chinese("origin", "profile", "我~(?:是)?在(?P<object>[^，。的]{2,10}?)(?:长大|出生)的?$", "来自{object}",
        "place", 0.95, single=True),
    chinese("origin", "profile", "我~是(?P<object>[^，。的个一这那什本外老别好坏男女]{2,6})人$",
        "来自{object}", "place", 0.9, single=True),
)
WORK = (
    chinese("occupation", "profile",
        f"我~(?:是|当|做|在做|在当)(?:一?(?:名|个|位))?(?P<object>{JOB})(?:了)?$", "是{object}", "role", 0.95,
        single=True),
    chinese("occupation", "profile",
        f"我~在(?P<about>[^，。的]{{2,15}}?)(?:当|做)(?:一?(?:名|个|位))?(?P<object>{JOB})$",
        "在{about}做{object}", "role", 0.95, single=True),
    chinese("employer", "profile", "我~在(?P<object>[^，。的]{2,15}?)(?:上班|工作|任职)(?:了)?$",
        "在{object}工作", "org", 0.9, single=True),
    chinese("employer", "profile",
        "我~(?:跳槽到|跳槽去|换到|入职|加入)了?(?P<object>[^，。的]{2,15}?)(?:了|工作|上班)?$",
        "在{object}工作", "org", 0.9, single=True),
    chinese("work_change", "profile", "我~(?P<object>辞职|离职|失业|退休|被裁|换工作)了(?:[^，。]{0,8})$",
        "{object}了", "plain", 0.9, single=True),
    chinese("studies", "profile",
        "我~(?:在|正在|在学|开始学|报名学|报了)(?:学习|学|读|念)(?P<object>[^，。了]{2,12}?)(?:呢)?$",
        "在学{object}", "list", 0.85),
    chinese("studies", "profile", "我的?专业是(?P<object>[^，。]{2,15}?)$", "专业是{object}", "list", 0.95),
)
FAMILY = (
    chinese("family:name", "profile",
        f"我(?:的|家)?(?:大|小)?{KIN}(?:的名字)?(?:叫|名叫)(?:做)?(?P<object>[^，。的]{{1,8}}?)$",
        "{about}叫{object}", "name", 0.95),
    chinese("family:life", "profile",
        f"我(?:的)?{KIN}~(?P<object>(?:是|在|住在)[^，。吗的]{{2,14}}(?:上班|工作|上学|读书|师|医生|员|住"
        "|上小学|上大学|上初中|上高中)?)$", "{about}{object}", "plain", 0.8),
    chinese("family:age", "profile",
        f"我(?:的|家)?{KIN}~(?P<object>(?:今年)?(?:\\d+|[一二两三四五六七八九十]+)岁)(?:了|半)?$",
        "{about}{object}", "plain", 0.9),
    chinese("children", "profile",
        f"(?:我|我们|我家)~有(?P<object>{COUNT}个(?:孩子|女儿|儿子|小孩|娃))(?:.*)$", "有{object}", "plain",
        0.9, single=True),
    chinese("siblings", "profile", f"我~有(?P<object>{COUNT}个(?:姐姐|妹妹|哥哥|弟弟))(?:.*)$", "有{object}",
        "plain", 0.9, single=True),
    chinese("pet", "profile",
        f"(?:我|我们|我家)~(?:里)?(?:养了|有|领养了|收养了|养着)(?P<object>{COUNT}?(?:只|条|匹|个)[^，。]{{0,6}}?"
        f"{ANIMAL}(?:(?:叫|名叫)[^，。]{{1,6}})?)$", "养了{object}", "plain", 0.9),
    chinese("pet:name", "profile",
        f"(?:我|我们)(?:的|家的?)?(?:那只|这只)?(?P<about>{ANIMAL})(?:的名字)?(?:叫|名叫)(?P<object>[^，。]{{1,8}}?)$",
        "{about}叫{object}", "name", 0.95),
)
HEALTH = (
    chinese("allergy", "profile", "(?:我|我~是)~对(?P<object>[^，。]{1,12}?)(?:会|有点|严重)?过敏(?:.*)$",
        "对{object}过敏", "list", 0.95),
    chinese("diet", "profile",
        "(?:我|我们)~(?:不吃|不喝|不能吃|不能喝|吃不了|喝不了|戒了|从不吃|从来不吃)(?P<object>[^，。]{1,10}?)(?:的|了)?$",
        "不吃或不喝{object}", "list", 0.9),
    chinese("diet", "profile", "我~(?:是)?(?P<object>吃素|素食者|素食主义者|乳糖不耐受?|糖尿病)(?:的|者)?$",
        "{object}", "plain", 0.95),
)
TASTE = (
    chinese("preference", "preference",
        "我~(?:不太|不怎么|不大|不|一点都不|一点也不|从来不)~(?:喜欢|爱)(?:吃|喝|看|听|去|用|做|玩)?"
        "(?P<object>[^，。]{1,14}?)(?:了)?$", "不喜欢{object}", "list", 0.9),
    chinese("preference", "preference", "我~(?:讨厌|受不了|反感|怕吃)(?P<object>[^，。]{1,14}?)(?:了)?$",
        "不喜欢{object}", "list", 0.9),
    chinese("favorite", "preference",
        "我~最(?:喜欢|爱)的(?P<about>[^，。是]{1,6})(?:就)?是(?P<object>[^，。]{1,15}?)$",
        "最喜欢的{about}是{object}", "list", 0.95),
    chinese("preference", "preference", "我~(?:喜欢上了|喜欢|热爱|爱|爱好|迷上了)(?P<object>[^，。]{1,14}?)$",
        "喜欢{object}", "list", 0.9),
)
HABITS = (
    chinese("habit", "custom",
        f"(?:我|我们)?(?:一般|通常|基本|平时)?(?P<object>{EVERY}(?:我|我们)?(?:都|会|要|都会|都要)?(?!.*都是)[^，。]{{2,20}}?)$",
        "{object}", "action", 0.85),
    chinese("habit", "custom", "(?:我)(?P<object>(?:通常|一般|习惯|经常)[^，。]{3,20}?)$", "{object}",
        "action", 0.8),
)
PLANS = (
    chinese("plan", "custom", "(?:我|我们)~(?:打算|计划|准备|决定)(?P<object>[^，。]{3,24}?)(?:了)?$",
        "打算{object}", "action", 0.85),
    chinese("plan", "custom",
        f"(?:我|我们)~(?P<object>{TIME}(?:就)?(?:要|会|想|得|去)[^，。]{{2,24}}?)(?:了)?$", "打算{object}",
        "action", 0.8),
    chinese("plan", "custom",
        f"(?P<object>{TIME}(?:我|我们)(?:就)?(?:要|会|想|得|去|打算|准备|计划)[^，。]{{2,24}}?)(?:了)?$",
        "打算{object}", "action", 0.8),
)
RULES = (
    chinese("rule", "rule",
        "(?:请|麻烦|麻烦你|以后|今后|千万|记得|记住|一定|你|也|还有|另外|拜托|总之)*(?P<object>(?:不要|别|不准|不许|永远不要|绝不要"
        "|绝对不要|千万别|切勿|不能)(?:再)?(?:在|给我|给|把|安排|约|打|发|推荐|提醒|用|放|订|叫|推|排|建议|买|加|问|提)"
        "[^，。]{2,24}?)(?:了)?$", "{object}", "rule", 0.9),
    chinese("rule", "rule",
        f"(?:请|以后|今后|我)*(?P<object>{DAY}[^，。]{{0,6}}?(?:不要|别|不能|不)(?:再)?(?:给我)?(?:安排|约|开|排|打|发|接|工作|加班"
        ")[^，。]{0,12}?)(?:了)?$", "{object}", "rule", 0.9),
    chinese("rule", "rule",
        "(?:请|麻烦|以后|今后)+(?:你)?(?P<object>(?:总是|永远|务必|一定要|都要|都用|只用)[^，。]{2,20}?)$",
        "{object}", "rule", 0.9),
)
# fmt: on

PATTERNS = (*IDENTITY, *PLACES, *WORK, *FAMILY, *HEALTH, *RULES, *TASTE, *HABITS, *PLANS)

#: English names of kin, so that both languages have the same key.
KIN_ENGLISH = dict(
    zip(
        words.listed(
            """妻子 老婆 太太 爱人 丈夫 老公 先生 男朋友 男友 女朋友 女友 未婚妻 未婚夫 女儿 儿子 孩子
            姐姐 妹妹 哥哥 弟弟 爸爸 父亲 妈妈 母亲 爷爷 奶奶 外公 姥爷 外婆 姥姥 室友"""
        ),
        words.listed(
            """wife wife wife partner husband husband husband boyfriend boyfriend girlfriend
            girlfriend fiancee fiance daughter son child older_sister younger_sister
            older_brother younger_brother father father mother mother grandfather
            grandmother maternal_grandfather maternal_grandfather
            maternal_grandmother maternal_grandmother roommate"""
        ),
        strict=True,
    )
)
