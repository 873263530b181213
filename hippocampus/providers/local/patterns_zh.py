"""Chinese fact patterns, tried in order at the start of each clause; the first of a topic wins.

A clause is matched in the spelling of `hippocampus.providers.local.clauses`: '我' is the subject where it was left
out, and dialect and polite words for relatives ('家父', '闺女') are the common ones.
"""

from __future__ import annotations

import re

from hippocampus.providers.local.patterns import chinese
from hippocampus.text import words

KIN = (
    "(?P<about>妻子|老婆|丈夫|老公|先生|太太|爱人|男朋友|女朋友|男友|女友|未婚妻|未婚夫|女儿|儿子|孩子|姐姐|妹妹|哥哥"
    "|弟弟|爸爸|妈妈|父亲|母亲|爷爷|奶奶|外公|外婆|姥姥|姥爷|室友|老伴|孙子|孙女|外孙女?|大孙子|小孙子|表[哥姐弟妹]"
    "|堂[哥姐弟妹]|舅舅"
    "|姑姑|阿姨|叔叔|公公|婆婆|岳父|岳母|老大|老二|老三|侄子|侄女|外甥女?|双胞胎|闺蜜|导师|对象)"
)
ANIMAL = (
    "(?:小猫|小狗|猫咪|狗狗|橘猫|狸花猫?|布偶猫?|英短|美短|暹罗猫?|三花猫?|奶牛猫|猫|金毛|柯基|泰迪|柴犬|边牧|哈士奇"
    "|拉布拉多|萨摩耶|比熊|法斗"
    "|土狗|狗|兔子|仓鼠|鹦鹉|乌龟|金鱼|孔雀鱼|斗鱼|锦鲤|热带鱼|鱼|龙猫|豚鼠|荷兰猪|马|鸡|鸭|守宫|蜥蜴|蛇|刺猬)"
)
NUMBER = "(?:\\d+|[零一二两三四五六七八九十百]+)"
COUNT = "(?:一|两|三|四|五|六|七|八|九|十|俩|仨|几|\\d+)"
_MEASURE = "(?:只|条|匹|个|头|尾)"
JOB = (
    "[^，。的了]{0,10}?(?:工程师|程序员|设计师|老师|教师|医生|大夫|护士|护士长|律师|会计|会计师|厨师|司机|记者|编辑"
    "|翻译|作家|画家"
    "|演员|歌手|摄影师|销售|经理|产品经理|学生|大学生|研究生|博士生|公务员|警察|民警|教授|讲师|研究员|店长|咖啡师"
    "|药剂师|建筑师|开发|运维|测试|运营"
    "|分析师|顾问|主管|总监|自由职业者?|心理咨询师|教练|农民|工人|创业者|兽医|班主任|校长|快递员|外卖员|骑手|保安"
    "|保姆|月嫂|裁缝|木匠|电工|消防员"
    "|军人|飞行员|空姐|导游|主播|博主|插画师|化妆师|理发师|美容师|策划|文员|秘书|助理|出纳|审计|法官|检察官|书记|主任"
    "|院长|博士|博士后|实习生|全职妈妈"
    "|全职太太|家庭主妇|志愿者|社工|营养师|健身教练|调酒师|面点师|列车员|乘务员|船员|矿工|钳工|焊工)"
)
SPORT = (
    "(?:太极拳?|瑜伽|羽毛球|乒乓球|网球|篮球|足球|排球|台球|游泳|跑步|慢跑|夜跑|马拉松|爬山|登山|徒步|攀岩|骑行|骑车"
    "|滑雪|滑冰|滑板|冲浪|潜水|钓鱼|健身|撸铁|普拉提|拳击|跆拳道|柔道"
    "|击剑|射箭|广场舞|街舞|芭蕾|舞蹈|唱歌|合唱|书法|毛笔字|国画|油画|素描|水彩|画画|陶艺|插花|茶艺|烘焙|烹饪|摄影"
    "|剪辑|编程|吉他|钢琴|小提琴|古筝|古琴|二胡|琵琶|架子鼓|尤克里里"
    "|围棋|象棋|桥牌|拼图|手账|钩针|编织|缝纫|木工|园艺|种花|种菜|露营|观鸟|评弹|京剧|越剧|相声|脱口秀|剧本杀|桌游"
    "|密室|葡萄酒|咖啡|品茶|集邮|盲盒|手办|英语|法语|德语|日语|韩语|西班牙语"
    "|俄语|意大利语|粤语|手语|普通话|欧体|颜体|柳体|行书|楷书|隶书)"
)
DAY = "(?:周|星期|礼拜)[一二三四五六日天末]"
_DAY_NUMBER = "(?:[初廿]?[一二三四五六七八九十]{1,3}|\\d{1,2})"
DATE = (
    f"(?:(?:今年|明年|后年|\\d{{4}}年)?(?:农历|阴历|正月|腊月|冬月|{_DAY_NUMBER}月)(?:份|底|初|中旬|上旬|下旬"
    f"|{_DAY_NUMBER}(?:号|日)?)?"
    f"|{_DAY_NUMBER}(?:号|日))"
)
#: '三周后我去北京'; what had ended before has 了 behind its verb.
_AFTER = (
    f"(?:再?过)?(?:{NUMBER}|几|半)(?:天|周|个?星期|个?礼拜|个月)(?:之|以)?后(?!来|[^，。]*[到去回来完好成见出买走]了)"
)
TIME = (
    f"(?:{DATE}|{_AFTER}|明天|后天|大后天|今晚|明晚|(?:(?:这|本|下)个?)?周末|下+(?:周|星期|礼拜)[一二三四五六日天末]?|(?:这|本)?(?:周"
    f"|星期|礼拜)[一二三四五六日天]|下个?月(?:{_DAY_NUMBER}[号日]|初|中旬|底)?"
    "|这个?月|月底|月初|年底|年初|年后|年前|明年|今年|后年|春节|过完年|过年|元旦|国庆(?:节)?|十一|五一|劳动节|中秋(?:节)?"
    "|圣诞(?:节)?(?![树卡岛帽袜歌]|老人)|平安夜|除夕|大年(?:三十|初[一二三四五六七])|情人节|七夕|感恩节|复活节"
    "|端午(?:节)?|清明(?:节)?|元宵|暑假|寒假|暑期"
    "|开春|入冬|秋天|夏天|冬天|春天|过两天|过几天|过阵子|过段时间|毕业后|考完试?|退休后)"
)
_CLOCK = (
    f"(?:早上|早晨|清晨|上午|中午|下午|晚上|傍晚|半夜|凌晨|睡前|饭后|下班后?|放学后?)?(?:{NUMBER}点(?:半|钟"
    f"|{NUMBER}分?)?)?"
)
EVERY = (
    f"(?:每天|每(?:个)?(?:早上|早晨|晚上|早|晚|周末|月|年|季度|学期)|每两?(?:个)?(?:周|星期"
    f"|礼拜)(?:[一二三四五六日天末][和、]?(?:周|星期|礼拜)?)*"
    f"|每隔[^，。]{{1,4}}|{DAY}(?:和|、)?(?:{DAY})?(?:早上|晚上)?都){_CLOCK}"
)
_ORG = (
    "(?:公司|银行|医院|学校|小学|中学|初中|高中|大学|幼儿园|研究所|研究院|设计院|厂|店|馆|局|所|院|社|台|部|部门|总行"
    "|分行|支行|集团|工作室|事务所|机构|超市|酒店"
    "|餐厅|咖啡馆|书店|报社|出版社|律所|政府|法院|工地|物业|机场|地铁|铁路|车间|大厂|外企|国企|银行|基金会)"
)
_I = "(?:我们|我家|我)"
_PLACE = "[^，。的了过这那]{2,12}?"

# Tables, read by row.
# fmt: off
IDENTITY = (
    chinese("name", "profile",
        "(?:我叫|我的名字(?:叫|是)|(?:以后|今后)?(?:你)?(?:们)?(?:以后)?(?:可以)?(?:就)?叫我)(?P<object>[^，。的我你不"
        "别]{1,12}?)"
        "(?:就行|就好|吧|好了|就可以|就成|得了)?$", "名叫{object}", "name", 0.95, single=True),
    chinese("surname", "profile", "我~(?:免贵)?姓(?P<object>[\\u4e00-\\u9fff]{1,2})$", "姓{object}",
        "name", 0.95, single=True),
    chinese("age", "profile", f"我~(?:今年)?(?:满|都|已经|快)?(?P<object>{NUMBER})岁(?:了)?$",
        "{object}岁", "plain", 0.95, single=True),
    chinese("age", "profile", "我~今年~(?P<object>\\d{2}|[一二三四五六七八九]?十[一二三四五六七八九]?)了?$",
        "{object}岁", "plain", 0.9, single=True),
    chinese("birthday", "profile", f"我的?生日(?:就)?(?P<object>(?:农历|阴历|阳历|阴历的|农历的)?{DATE})$",
        "生日是{object}", "plain", 0.95, single=True),
    chinese("birthday", "profile", "我的?生日(?:是|在)(?P<object>[^，。]{2,12}?)$", "生日是{object}", "plain",
        0.95, single=True),
    chinese("relationship_status", "profile", "我~(?:跟|和|与)(?P<about>[^，。我]{1,8}?)~(?P<object>领证|结婚|订婚"
        "|在一起|分手|离婚)了?(?:[^，。]{0,6})$",
        "和{about}{object}了", "plain", 0.95, single=True),
    chinese("relationship_status", "profile", "我~(?P<object>结婚|离婚|订婚|单身|领证|分手|失恋|谈恋爱|脱单|有对象"
        "|恋爱)了?(?:[^，。]{0,6})$",
        "{object}", "plain", 0.9, single=True),
    chinese("zodiac", "profile", "我~(?:是)?属(?P<object>[鼠牛虎兔龙蛇马羊猴鸡狗猪])的?$", "属{object}",
        "plain", 0.9, single=True),
)
CITY = (
    "(?:北京|上海|广州|深圳|杭州|成都|重庆|武汉|南京|苏州|西安|天津|长沙|青岛|厦门|福州|大连|沈阳|哈尔滨|长春|济南"
    "|郑州|合肥|昆明|贵阳|南宁|南昌|太原|石家庄|兰州|西宁|银川|乌鲁木齐"
    "|呼和浩特|拉萨|海口|三亚|宁波|无锡|佛山|东莞|珠海|温州|绍兴|嘉兴|常州|徐州|烟台|泉州|惠州|中山|香港|澳门|台北"
    "|高雄|新加坡|东京|大阪|首尔|伦敦|巴黎|纽约|柏林|悉尼|墨尔本|多伦多|温哥华)"
)
PLACES = (
    chinese("home", "profile", f"我~(?:人)?在(?P<object>{CITY})(?:市)?(?:[^，。]{{0,14}}{_ORG}(?:里|上班|工作)?|这边"
        f"|呢)?$", "在{object}", "place", 0.8, single=True),
    chinese("home", "profile", "我(?:的|家|们)?(?:房子|家|公寓|新家)(?:就)?在(?P<object>[^，。的了]{2,12}?)$",
        "住在{object}", "place", 0.85, single=True),
    chinese("home", "profile",
        f"{_I}~(?:住在|住|定居在|定居|安家在|落户在?|搬到了?|搬去了?|搬家到了?|搬来了?|搬回了?|搬进了?|搬过去"
        f"|租在)(?!了|的|我|公司附近|一起|宿舍|校)"
        "(?P<object>[^，。的了过]{2,15}?)(?:了|这边|那边|生活|工作|住|的(?:老城区|市中心|城区|郊区|[东西南北]边))*$",
        "住在{object}", "place", 0.95, single=True),
    chinese("home", "profile", f"{_I}~(?:在|人在|回)(?P<object>{_PLACE})(?:定居|安家|租房|租了[^，。]{{1,6}}|生活"
        f"|买了房|住)(?:了|呢)?(?:{NUMBER}年.*)?$",
        "住在{object}", "place", 0.9, single=True),
    chinese("home", "profile", f"{_I}~(?:在|人在)(?P<object>{_PLACE})(?:待|呆|住|干|工作|生活)了(?:快|差不多"
        f"|有)?{NUMBER}(?:多)?(?:年|个月)(?:多|了)*$",
        "在{object}生活", "place", 0.85, single=True),
    chinese("property", "custom", f"{_I}~(?:在)(?P<object>[^，。的了]{{2,10}}?买(?:了|的)(?:一?套|个)?(?:房子?|公寓"
        f"|别墅))[^，。]*$", "{object}", "plain", 0.9),
    chinese("origin", "profile",
        "我~(?:来自|老家(?:是|在)|家乡(?:是|在)|出生(?:在|于)|从小在|是从)(?P<object>[^，。的]{2,12}?)(?:来的|长大的?"
        "|人|的)?$",
        "来自{object}", "place", 0.95, single=True),
    chinese("origin", "profile", "我~(?:是)?在(?P<object>[^，。的]{2,10}?)(?:长大|出生)的?$", "来自{object}",
        "place", 0.95, single=True),
    chinese("origin", "profile", "我~是(?:土生土长的|地道的?)?(?P<object>[^，。的个一这那什本外老别好坏男女病]{2,6})人"
        "$",
        "来自{object}", "place", 0.9, single=True),
)
WORK = (
    chinese("occupation", "profile",
        f"我~在(?P<about>[^，。]{{2,18}}?)~(?:当|做|是|担任)(?:了)?(?:一?(?:名|个|位))?(?P<object>{JOB})$",
        "在{about}做{object}", "role", 0.95, single=True),
    chinese("occupation", "profile",
        f"我~(?:是|当|做|在做|在当|当上|干|升|转做|改做|成了|成为)(?:了)?(?:一?(?:名|个"
        f"|位))?(?:退休)?(?P<object>{JOB})了?$", "是{object}", "role", 0.95,
        single=True),
    chinese("work_years", "profile", f"我~(?P<object>(?:教书|当老师|从医|行医|开车|当兵)了?(?:快)?{NUMBER}多?年)了?$",
        "{object}", "plain", 0.9, single=True),
    chinese("work_history", "profile", f"我~(?:早先|年轻时候?|退休前|原来)?~在(?P<object>[^，。的]{{2,12}}?(?:厂|公司"
        f"|学校|医院|单位|店|局|矿|部队|农场|银行)(?:干|工作|教书|上班|待)了(?:快)?{NUMBER}多?年)了?$",
        "在{object}", "plain", 0.9, single=True),
    chinese("employer", "profile", f"我~在(?P<object>[^，。]{{2,18}}?)(?:上班|工作|任职|实习|教书|干活)(?:了"
        f"|呢)?(?:{NUMBER}年.*)?$",
        "在{object}工作", "org", 0.9, single=True),
    chinese("employer", "profile",
        "我~(?:跳槽到|跳槽去|换到|换去|入职|加入(?=[^，。]*(?:公司|集团|大厂|医院|银行|[局所厂]))|调到|调去|调回|转到"
        "|转去|签了)了?"
        f"(?P<object>[^，。]{{0,14}}?{_ORG})(?:了|工作|上班|实习|报到)*$",
        "在{object}工作", "org", 0.9, single=True),
    chinese("employer", "profile", f"我~在(?P<object>[^，。]{{0,6}}?一家[^，。]{{0,14}}?{_ORG})(?:里|那边|这边)?$",
        "在{object}工作",
        "org", 0.8, single=True),
    chinese("employer", "profile", "我~(?:跳槽到|跳槽去|入职)了?(?P<object>[^，。的]{2,12}?)(?:了|工作|上班)*$",
        "在{object}工作", "org", 0.9, single=True),
    chinese("business", "profile", "我~(?:自己)?~(?:开了|盘了|盘下了?|开起了|经营着?|创办了"
        "|成立了)(?P<object>一?(?:个|家|间)?[^，。了]{1,10}?(?:店|馆|公司|工作室|铺子?|民宿|餐厅|厂|摊|网店|面馆"
        "|诊所))(?:了|在.*)?$",
        "开了{object}", "plain", 0.9, single=True),
    chinese("work_change", "profile", "我~(?P<object>辞职|离职|失业|退休|被裁|换工作|跳槽|休产假|复工"
        "|内退)了(?:[^，。]{0,8})$",
        "{object}了", "plain", 0.9, single=True),
    chinese("work_change", "profile", "我~从(?P<object>[^，。搬]{1,12}?)(?:出来|离职|辞职|离开|退休|毕业)了$",
        "离开{object}了", "plain", 0.85, single=True),
    chinese("studies", "profile",
        "我~在(?P<object>[^，。的]{2,12}?(?:大学|学院|学校|中学|高中|师范|理工|财大|政法)?(?:学习|学|读"
        "|念)[^，。了]{1,10}?)(?:呢|了)?$", "在{object}", "plain", 0.85),
    chinese("studies", "profile",
        "我~(?:在|正在|在学|开始学|开始|报名学|报了|自学|学了)(?:学习|学|读|念)?(?P<object>(?:英|法|德|日|韩|俄"
        "|西班牙|意大利|葡萄牙|阿拉伯|泰|粤)语|钢琴|吉他|小提琴|古筝|尤克里里|书法|画画|国画|油画|素描|游泳|开车|摄影"
        "|编程|烘焙|瑜伽|舞蹈|架子鼓|声乐|围棋)(?:呢|课|班|了)*$",
        "在学{object}", "list", 0.85),
    chinese("studies", "profile",
        "我~(?:在|正在|在学|开始学|报名学|报了)(?:学习|学|读|念)(?P<object>[^，。了]{2,12}?)(?:呢)?$",
        "在学{object}", "list", 0.85),
    chinese("studies", "profile", f"我~(?:学|练|弹)了?(?:快)?{NUMBER}多?(?:年|个月)(?:的"
        f"|多)?(?P<object>[^，。了]{{1,8}}?)了?$", "在学{object}", "list", 0.85),
    chinese("studies", "profile", "我的?专业是(?P<object>[^，。]{2,15}?)$", "专业是{object}", "list", 0.95),
    chinese("school", "profile", "我~(?:今年|现在)*(?:是|上|读|念)?(?P<object>大[一二三四五]|研[一二三]|高[一二三]"
        "|初[一二三]|博[一二三])(?:了|学生|的学生|新生)*$", "读{object}", "plain", 0.9, single=True),
)
_MOVE = (
    "(?:去|飞|回|走|出发|搬|考|到|入职|开学|毕业|结婚|办|手术|住院|出差|报到|开始|动身|启程|出国|领证|开业|开张|交"
    "|过生日|过|参加|带|跟|和|陪|见|面试|答辩|体检|复查|比赛|演出|办婚礼|办酒"
    "|摆酒|退休|离职|签|来|拿)"
)
_KIN_STATE = (
    "(?P<object>(?:在|是|住在?|搬(?:到|来|去|回)|今年(?!\\d|[一二三四五六七八九十])|要|快要?|已经|刚|考上|考到|怀孕"
    "|怀上|生了|去世|过世|走了|退休"
    "|姓|结婚|离婚|订婚|当|上|读|念|学|有(?:高血压|糖尿病|心脏病|哮喘|\\d|[一二三])"
    "|对|不吃|不能|喜欢|最爱|爱|讨厌|出生|得了|患|做了|出国|去了|回了?|属|教|开|跟|和)[^，。]{0,18})"
)
FAMILY = (
    chinese("family:birth", "profile", "我~(?:生了|添了|是)(?P<object>一?个(?:男宝宝?|女宝宝?|儿子|女儿|千金|男孩"
        "|女孩)叫[^，。的]{1,4})$", "生了{object}", "plain", 0.85),
    chinese("family:name", "profile",
        f"我(?:的|家)?(?:大|小|二)?{KIN}(?:的名字)?(?:叫|名叫|取名|起名叫?)(?:做)?(?P<object>[^，。的]{{1,8}}?)$",
        "{about}叫{object}", "name", 0.95),
    chinese("family:surname", "profile", f"我(?:的|家)?{KIN}姓(?P<object>[\\u4e00-\\u9fff])$", "{about}姓{object}",
        "name", 0.9),
    chinese("family:age", "profile",
        f"我(?:的|家)?{KIN}~(?P<object>(?:今年)?(?:\\d+|[一二两三四五六七八九十]+)岁)(?:了|半|多)?$",
        "{about}{object}", "plain", 0.9),
    chinese("family:age", "profile", f"我(?:的|家)?{KIN}~今年~(?P<object>\\d{{2}}"
        f"|[一二三四五六七八九]?十[一二三四五六七八九]?)了?$", "{about}{object}岁", "plain", 0.85),
    chinese("family:birth", "profile", f"我(?:的|家)?{KIN}(?P<object>(?:{TIME}|去年|上个?月|上周|昨天|前天"
        f"|今天)?[^，。]{{0,4}}(?:生了|出生)[^，。]{{0,12}})$", "{about}{object}", "plain", 0.9),
    chinese("family:birth", "profile", "我~(?P<object>(?:生了|添了|当了?)(?:一?个|对)?(?:大胖)?(?:男孩|女孩|儿子|女儿"
        "|宝宝|娃|小子|丫头|二胎|双胞胎|千金|妈妈?|爸爸?|爷爷|奶奶|姥姥|外婆|外公)[^，。]{0,10})$", "{object}",
        "plain", 0.9),
    chinese("pregnancy", "profile", "我~(?P<object>怀孕|怀上|怀二胎|有喜)了?(?:[^，。]{0,8})$", "{object}了",
        "plain", 0.9, single=True),
    chinese("family:life", "profile", f"我(?:的|家)?{KIN}~(?:{TIME})?{_KIN_STATE}$", "{about}{object}",
        "kin_state", 0.8),
    chinese("family:plan", "profile", f"我(?:的|家)?{KIN}(?P<object>{TIME}(?:就|要|会|才"
        f"|就要)*{_MOVE}[^，。]{{1,16}})$", "{about}{object}",
        "kin_state", 0.8),
    chinese("children", "profile",
        f"{_I}~有(?P<object>{COUNT}个(?:孩子|女儿|儿子|小孩|娃)(?:(?:分别)?叫[^，。]{{1,12}})?)(?:.*)$",
        "有{object}", "plain",
        0.9, single=True),
    chinese("siblings", "profile", f"我~有(?P<object>{COUNT}个(?:姐姐|妹妹|哥哥|弟弟|姐|妹|哥"
        f"|弟)(?:(?:分别)?叫[^，。]{{1,12}})?)(?:.*)$",
        "有{object}",
        "plain", 0.9, single=True),
    chinese("pet", "profile",
        f"{_I}~(?:里)?~(?:养了|有|领养了|收养了|养着|养|添了|捡了|买了|接了|又?多了|是)(?P<object>{COUNT}?{_MEASURE}[^"
        f"，。]{{0,6}}?"
        f"{ANIMAL}(?:(?:叫|名叫)[^，。]{{1,6}})?)(?:了)?$", "养了{object}", "plain", 0.9),
    chinese("pet", "profile", f"我~(?:开始)?养(?:了)?(?P<object>{COUNT}?{_MEASURE}?[^，。]{{0,4}}?{ANIMAL}(?:叫[^，。]"
        f"{{1,6}})?)了?$", "养了{object}", "plain", 0.85),
    chinese("pet:name", "profile",
        f"我(?:们)?(?:的|家的?)?(?:那只|这只|那条)?(?P<about>{ANIMAL})(?:的名字)?(?:叫"
        f"|名叫)(?P<object>[^，。]{{1,8}}?)$",
        "{about}叫{object}", "name", 0.95),
)
HEALTH = (
    chinese("allergy", "profile", "(?:我|我~是)~对(?P<object>[^，。不没]{1,12}?)(?:会|有点|严重|很|特别|非常"
        "|都)*过敏(?:.*)$",
        "对{object}过敏", "items", 0.95),
    chinese("allergy", "profile", "我~(?:是)?(?P<object>[^，。我不没对会一是有]{1,6}?)(?:重度|严重)?过敏(?:者|体质)?$",
        "对{object}过敏", "items", 0.95),
    chinese("allergy", "profile", "我~(?:一)?(?:吃|喝|碰|闻)(?:到|了)?(?P<object>[^，。]{1,6}?)~(?:就|会"
        "|都)(?:会)?(?:过敏|[^，。]{0,4}(?:肿|痒|起疹子?|拉肚子|起红点|喘不上气|吐|恶心|难受|烧心|胃疼|胃痛|头疼)).*$",
        "吃{object}会不舒服", "list", 0.9),
    chinese("diet", "profile",
        f"{_I}~(?:已经|都|成功|彻底|决定)*(?:戒掉了?|戒了|戒)(?P<object>烟酒?|酒|糖|咖啡因?|奶茶|甜[食品]|红?肉|碳水|主食|零食"
        "|辣|槟榔|可乐|(?:碳酸|含糖)?饮料|夜宵|外卖|奶制品|海鲜|游戏|短视频)(?:已经|都|有|快|满|整整)*了?"
        f"(?P<about>(?:(?:{NUMBER}|半|几|好几|俩|仨)多?个?半?(?:年|月|天|周|星期|礼拜)(?:多|半|零{NUMBER}天)?)?)了?$",
        "戒{object}{about}", "plain", 0.9),
    chinese("diet", "profile",
        f"{_I}~(?:从来|一口|一点)?~(?:不吃|不喝|不能吃|不能喝|不能碰|吃不了|喝不了|吃不得|沾不得|吃不惯|戒了|戒"
        f"|从不吃|从来不吃|忌|忌口)(?P<object>(?![仨俩两几一二三四五六七八九十半\\d]+个?[月年天周])[^，。饭饱完得下了]{{1,8}}?)(?:的)?(?:了)?$",
        "不吃或不喝{object}", "list", 0.9),
    chinese("diet", "profile", "我~(?:是)?(?P<object>吃素|素食者|素食主义者|乳糖不耐受?|糖尿病|吃清真|吃斋)(?:的"
        "|者)?$",
        "{object}", "plain", 0.95),
    chinese("health", "profile", "我~(?:有|得了|患了?|查出来?|确诊了?|犯了?|落下了?)(?P<object>(?:[^，。]{0,4}(?:高血"
        "压|低血糖|高血脂|糖尿病|哮喘|痛风|胃炎|胃病|鼻炎|关节炎|颈椎病|腰椎间盘突出|偏头痛|失眠|抑郁症?|焦虑症?"
        "|心脏病|近视|散光|湿疹|荨麻疹|甲亢|甲减|贫血|脂肪肝|结石|尿酸高)))[^，。]*$",
        "有{object}", "plain", 0.9),
    chinese("health", "profile", "我~(?P<object>尿酸高|血压高|血糖高|血脂高|色盲|色弱|近视\\S{0,6}|左撇子|恐高|晕车"
        "|晕船|失眠|神经衰弱|腰不好|膝盖不好|眼神不好|耳背|睡眠不好)(?:了)?$", "{object}", "plain", 0.85),
)
TASTE = (
    chinese("preference", "preference", "我的?(?:主要)?(?:兴趣|业余)?(?:爱好|兴趣)(?:主要)?(?:是|有"
        "|包括)(?!看心情|随缘|没有)(?P<object>[^，。]{2,30}?)$",
        "喜欢{object}", "list", 0.85),
    chinese("favorite", "preference", "我(?:个人|自己)?(?:一直|还是)?最推荐的(?P<about>[^，。是]{0,6})(?:就|还|还得)?是"
        "(?P<object>[^，。]{1,15}?)$", "最推荐的{about}是{object}", "titles", 0.9),
    chinese("favorite", "preference", "我(?:个人|自己)?(?:一直|还是)?(?:最推荐"
        "|首推)(?!大家|别人|[^，。]*(?:看看|试试|一下))(?P<object>[^，。的你您这那]{1,15}?)$",
        "最推荐{object}", "titles", 0.85),
    chinese("favorite", "preference", "我的?(?P<about>[^，。是的我]{0,4})(?:首选|头号选择|第一选择)(?:就|一直|永远"
        "|还)*是"
        "(?P<object>[^，。]{1,15}?)$", "{about}首选是{object}", "titles", 0.9),
    chinese("favorite", "preference", "我的(?:最爱|心头好)(?:就|一直|永远|还)*是(?P<object>[^，。]{1,15}?)$",
        "最爱是{object}", "titles", 0.9),
    chinese("favorite", "preference",
        "我~最(?:喜欢|爱|爱吃|爱喝|爱看|喜欢吃|喜欢喝)的(?P<about>[^，。是]{0,6})(?:就)?是(?P<object>[^，。]{1,15}?)$",
        "最喜欢的{about}是{object}", "list", 0.95),
    chinese("preference", "preference",
        "我~(?:不太|不怎么|不大|不|一点都不|一点也不|从来不|再也不)~(?:喜欢|爱)(?:吃|喝|看|听|去|用|做|玩)?"
        "(?P<object>[^，。]{1,14}?)(?:了)?$", "不喜欢{object}", "list", 0.9),
    chinese("preference", "preference", "我~(?:讨厌|受不了|反感|怕吃|最烦|烦)(?P<object>[^，。]{1,14}?)(?:了)?$",
        "不喜欢{object}", "list", 0.9),
    chinese("preference", "preference", "我~(?:更喜欢|更爱|偏爱|首选|选)(?P<object>[^，。了]{1,10}?)$",
        "更喜欢{object}", "list", 0.8),
    chinese("preference", "preference", "我~(?:喜欢上了?|喜欢|热爱|爱(?!情|心|好|人|说|谁|了)|爱好是?|迷上了?|爱上了?"
        "|沉迷|痴迷)(?P<object>(?!吃$|喝$|看$|玩$|你|他|她|谁)[^，。]{1,16}?)(?:了)?$",
        "喜欢{object}", "list", 0.9),
)
_LANGUAGE = (
    "(?:(?:一点点?|一些|点|简单的?|流利的?)?(?:[英法德日韩俄粤泰藏蒙]语|[中英日法德韩俄]文|(?:西班牙|葡萄牙|意大利"
    "|阿拉伯|荷兰|波兰|越南"
    "|印尼|印地|马来|瑞典|挪威|丹麦|芬兰|土耳其|希腊|希伯来|捷克|拉丁|闽南|客家|维吾尔)语|普通话|(?:广东|上海|四川"
    "|客家|闽南"
    "|潮汕|东北|温州|福州)话|手语))"
)
_LANGUAGES = f"(?:{_LANGUAGE}(?:(?:、|，?以及|，?还有|和|跟){_LANGUAGE})*)"
SKILLS = (
    chinese("speaks", "profile", f"我~(?:会|能)(?:说|讲)?(?P<object>{_LANGUAGES})(?:了)?$", "会说{about}{object}",
        "languages", 0.95),
    chinese("speaks", "profile", f"我~(?P<object>{_LANGUAGES})都?(?:会说|会讲|会|说得[^，。不]{{1,4}})$",
        "会说{about}{object}", "languages", 0.9),
)
HABITS = (
    chinese("activity", "custom", "(?:我|我们)~(?:重新|认真)?开始(?P<object>(?:(?:去|学|练|打|跑|上|做|玩|跳|弹|画"
        "|写|坚持|自学)*"
        f"(?:{SPORT}|锻炼|运动|减肥|节食|冥想|打坐|早起|晨跑|晨练|健身房|私教课?|长跑|力量训练|心理咨询|记账|写日记|攒钱)"
        "(?:课|班|打卡)*))了?$", "开始{object}", "plain", 0.85),
    chinese("habit", "custom",
        f"(?:我|我们)?~(?:一般|通常|基本|平时|现在)*(?P<object>{EVERY}(?:我|我们)?(?:都|会|要|都会|都要|必"
        f"|得)?(?!.*都是)[^，。]{{1,20}}?)$",
        "{object}", "habit", 0.85),
    chinese("habit", "custom", f"(?:我|我们)~(?P<object>{_CLOCK}{EVERY}[^，。]{{2,16}})$", "{object}", "action", 0.8),
    chinese("habit", "custom", "(?:我)(?P<object>(?:通常|一般|习惯(?!了$)|经常)[^，。]{3,20}?)$", "{object}",
        "action", 0.8),
    chinese("habit", "custom", f"(?:我|我们)~(?P<object>{DAY}(?:和|、)?(?:{DAY})?(?:都|会|要|固定)[^，。]{{2,16}})$",
        "{object}", "action", 0.8),
    chinese("member", "custom", "(?:我|我们)~(?:报了|参加了|加入了|进了|报名了|报名参加了?)(?P<object>(?:一?个)?[^，。"
        "了]{1,10}?(?:社团?|团|班|队|俱乐部|课|协会|小组|训练营|培训|乐队))(?:了)?$",
        "参加了{object}", "plain", 0.85),
    chinese("member", "custom", "(?:我|我们)~(?:报了|报名了)(?P<object>羽毛球|乒乓球|网球|篮球|足球|游泳|瑜伽|健身"
        "|舞蹈|书法|吉他|钢琴|驾校|考研|雅思|托福)(?:课|班)?$", "报了{object}", "plain", 0.85),
)
_OCCASION = (
    "(?:婚礼|婚期|日子|手术|考试|面试|答辩|航班|飞机|火车|高铁|机票|预产期|生日|演出|比赛|会议|体检|复查|开学|入学"
    "|开业|搬家|聚会|聚餐|年会|毕业典礼|家长会|参观|酒席|婚宴|酒|签约|交房|比赛|决赛|讲座|展览|旅行|行程|出发"
    "|面签|四级|六级|雅思|托福|高考|中考|考研|满月酒|周岁宴)"
)
PLANS = (
    chinese("plan", "custom", f"(?:我|我们)?(?:的|家)?(?P<about>[^，。我]{{0,5}}?{_OCCASION})(?:时间|日期"
        f"|那天)?~(?:定|订|安排|改|挪|推迟|延期|提前|约|排|推)?(?:是|在|到|成|了|于)*(?P<object>{TIME}{_CLOCK}[^，。]"
        f"{{0,8}}?)(?:了)?$",
        "{about}在{object}", "occasion", 0.85),
    chinese("plan", "custom", f"(?:我|我们)?(?:的)?日子(?:定|订)(?:在|了)*(?P<object>{TIME}[^，。]{{0,8}})$",
        "日子定在{object}", "occasion", 0.8),
    chinese("plan", "custom", "(?:我|我们)~(?:原定|原计划|本来定|本来打算|打算|计划|准备|决定|预计|定了|约了|约好"
        "|订了|报名)(?:是|在|的)*(?P<object>[^，。]{3,28}?)(?:了)?$", "打算{object}",
        "action", 0.85),
    chinese("plan", "custom",
        f"(?:我|我们)~(?:(?:跟|和)[^，。我]{{1,6}}?)?(?P<object>{TIME}{_CLOCK}(?:就|我|我们|才|再)?(?:要|会|想|得"
        f"|就要|打算|准备|该|能|可以)?{_MOVE}[^，。]{{0,20}}?)(?:了)?$", "打算{object}",
        "action", 0.8),
    chinese("plan", "custom", f"(?:我|我们)?(?:接下来|过后|之后)?(?:想|要|打算|准备)(?P<object>{TIME}?(?:去|回|到|考"
        f"|学|换|搬|买|辞|开)[^，。]{{2,20}}?)(?:了)?$", "打算{object}", "action", 0.75),
    chinese("plan", "custom",
        f"(?P<object>{TIME}{_CLOCK}(?:我|我们)(?:就)?(?:要|会|想|得|去|打算|准备|计划|飞|回)[^，。]{{2,24}}?)(?:了)?$",
        "打算{object}", "action", 0.8),
)
EVENTS = (
    chinese("event", "custom", "(?:我|我们)~去过(?P<object>(?=[^，。]*[和、])[^，。的了次过很]{2,24}?)(?:玩过?"
        "|旅游过?|旅行过?"
        "|出差)?$", "去过{object}", "names", 0.85),
    chinese("event", "custom", "(?:我|我们)~(?:终于|刚|刚刚|成功|顺利|居然|竟然)*(?P<object>(?:评上|考上|考过|考到"
        "|拿到|拿了|获得|当选|当上|升职|升|通过|录取|被录取|中签|上岸|出版|发表|获奖|得奖|毕业|转正|入党|落户|提车"
        "|买房|买了(?:房|车|新房|新车)|做了?[^，。]{0,6}手术|骨折|摔断|出院|住院|去过|去了趟?|学会)"
        r"了?[^，。]{0,14}?)了?$", "{object}", "event_zh", 0.8),
    chinese("event", "custom", "(?:我|我们)~(?P<object>过[^，。年节来去了得日生]{1,6})了$", "{object}了", "plain", 0.8),
)
_ASKED = (
    "(?:回答|回复|回|答|讲题?|讲解|解释|说话?|写|用|翻译|推荐|安排|提醒|称呼|叫|给我|发|代码|字|语气|说明|总结|举例"
    "|列|标|加|带|夹|问|提|输出|聊天|打招呼|建议)"
)
RULES = (
    chinese("rule", "rule",
        "(?:请|麻烦|拜托|那|还有|另外|你|记得|记住)*(?:以后|今后|往后|从今以后|从今往后|从现在起|从现在开始|下次|每次"
        "|一律|永远|总是)(?=[^，。]*(?:[你我叫喊用回答说讲写聊发给按译]|推荐|提醒|安排|称呼|别|不要|不用|先|只"
        "|周|星期))(?P<object>(?!我(?:想|要|打算|准备|就|会|得|再|也|可|不)|再说|机会|有机会|别人|他|她|怎么"
        "|会不会)[^，。]{2,24}?)(?:了|哈|啊|哦|吧|就行|就好)*$",
        "以后{object}", "rule_zh", 0.85),
    chinese("rule", "rule", f"(?:请|请你|麻烦你?|拜托你?|你)(?P<object>(?:以后|今后|都|就|尽量|务必|一定|只|先|不要"
        f"|别|勿|多|少|用)[^，。]*{_ASKED}[^，。]{{0,20}}?)(?:了|哈|啊|哦|吧)*$", "{object}", "rule_zh", 0.85),
    chinese("rule", "rule",
        "(?:请|麻烦|麻烦你|以后|今后|千万|记得|记住|一定|你|也|还有|另外|拜托|总之)*(?P<object>(?:不要|别|不准|不许"
        "|永远不要|绝不要"
        "|绝对不要|千万别|切勿|不能)(?:再)?(?:在|给我|给|把|安排|约|打|发|推荐|提醒|用|放|订|叫|推|排|建议|买|加|问"
        "|夹|带|写|称呼|说教|啰嗦|废话|用敬语)"
        "[^，。]{0,24}?)(?:了)?$", "{object}", "rule", 0.9),
    chinese("rule", "rule",
        f"(?:请|以后|今后|我)*(?P<object>{DAY}[^，。]{{0,6}}?(?:不要|别|不能|不)(?:再)?(?:给我)?(?:安排|约|开|排|打"
        f"|发|接|工作|加班"
        ")[^，。]{0,12}?)(?:了)?$", "{object}", "rule", 0.9),
    chinese("rule", "rule",
        "(?:请|麻烦|以后|今后)+(?:你)?(?P<object>(?:总是|永远|务必|一定要|都要|都用|只用)[^，。]{2,20}?)$",
        "{object}", "rule", 0.9),
    chinese("rule", "rule", "(?:你|请你?|麻烦)?(?P<object>(?:回答|回复|说话|字|答案|解释|内容|话|说)(?:请|要|得|可以"
        "|能)*(?:简短|简洁|简单|短|少|直接|详细|慢|大白话|通俗|写少|打少|说少)(?:一?(?:点儿?|些))?)(?:就行|就好|吧|啊"
        "|哈|了)*$",
        "{object}", "rule_zh", 0.85),
)
# fmt: on

PATTERNS = (*RULES[:1], *IDENTITY, *WORK, *PLACES, *FAMILY, *HEALTH, *RULES, *SKILLS, *TASTE, *HABITS, *PLANS, *EVENTS)

#: Names of relatives that a clause mentions beside something else: '我女朋友小雨说…'.
NAMED_KIN = chinese(
    "family:name",
    "profile",
    f"^.*?我(?:的|家)?{KIN}(?P<object>[\\u4e00-\\u9fff]{{2,3}}?)(?=说|在|是|今年|也|要|给|来|去|刚|最近|都|从|和|跟"
    f"|上|过|不|的)",
    "{about}叫{object}",
    "kin_name",
    0.85,
)

#: English names of kin, so that both languages have the same key.
_MALE = re.compile("爸|父|爷|公|夫|先生|男|哥|弟|儿子|孙子|舅(?!妈)|叔|侄子|外甥(?!女)")
_FEMALE = re.compile("妈|母|奶|婆|姥姥|妻|太太|女|姐|妹|姑|姨|闺")


def may_mean(pronoun: str, kin: str) -> bool:
    """Return whether 他 or 她 may mean a relative: not of another gender."""
    others = {"他": _FEMALE, "她": _MALE}.get(pronoun[:1])
    return others is None or others.search(kin) is None


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
