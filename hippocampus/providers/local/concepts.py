"""Word families: a short hand-written list of English and Chinese words that are often used for one another.

One line is one family. It lets 'kids' find 'children' and '狗' find 'dog'; it is not a thesaurus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hippocampus.text import words

_FAMILIES = """
child kid kids children baby toddler son daughter 孩子 小孩 儿子 女儿 宝宝
mother mom mum mommy 妈妈 母亲
father dad daddy 爸爸 父亲
parent parents mom dad mother father 父母 爸妈 家长
family relatives relative siblings 家人 家庭 亲戚
husband wife spouse partner married marriage wedding fiance fiancee 丈夫 老公 妻子 老婆 结婚 婚礼 先生 太太
date dating boyfriend girlfriend relationship romantic romance breakup 男友 女友 恋爱 约会
friend friends buddy buddies pal mate mates 朋友
dog dogs puppy puppies pup doggo 狗 小狗 狗狗
cat cats kitten kitty 猫 小猫 猫咪
pet pets animal animals dog cat turtle puppy 宠物 动物
job work career occupation profession employment working 工作 职业
company employer firm office business startup 公司 单位 办公室
boss manager supervisor 老板 领导 经理
colleague coworker coworkers teammate teammates team 同事 团队
hire hired fired laid quit resign resigned unemployed 辞职 离职 失业 入职
school college university campus 学校 大学
study studying studies learn learning class course courses lesson education degree 学习 上课 课程 学
exam test tests quiz 考试 测验
teach teacher teaching tutor professor instructor 老师 教师 教
home house apartment flat condo place residence 家 房子 公寓
move moved moving relocate relocated 搬家 搬到 搬
live living reside lives lived hometown 住 居住
city town village 城市 城
country nation state 国家
trip travel traveling travelled vacation holiday journey visit visited tour 旅行 旅游 出游 度假
flight plane airport fly flew 飞机 航班 机场
train railway station subway metro 火车 高铁 地铁
car vehicle drive driving truck prius 车 汽车 开车
bike bicycle cycling biking 自行车 骑车
walk walking stroll hike hiking hikes trail trek 散步 徒步 爬山
camp camping campfire tent campground 露营
beach sea ocean coast shore 海边 大海 海滩
mountain mountains hill peak 山 爬山
nature outdoors outdoor forest woods park wildlife 自然 户外 公园
sport sports exercise workout fitness gym training 运动 锻炼 健身
run running race marathon jog jogging 跑步 马拉松
swim swimming pool 游泳
yoga meditation meditate mindfulness 瑜伽 冥想
food meal meals dish dishes cuisine eat eating 食物 饭 菜 吃
dinner lunch breakfast brunch supper 晚饭 午饭 早饭 早餐 晚餐
cook cooking bake baking recipe recipes kitchen 做饭 烹饪 烘焙 菜谱
dessert cake cookies cupcakes sweets pastry icecream 甜点 蛋糕
drink drinks coffee tea beverage 喝 咖啡 茶
restaurant cafe diner 餐厅 饭店 咖啡馆
diet vegan vegetarian nutrition healthy 饮食 素食
allergy allergic allergies intolerant 过敏
doctor physician hospital clinic nurse medical 医生 医院 护士
health sick ill illness disease condition 健康 生病 病
hurt injury injured pain sprained broke broken 受伤 疼
stress stressed anxiety anxious worried nervous 压力 焦虑 紧张 担心
sad upset depressed heartbroken 难过 伤心
happy joy glad delighted cheerful 开心 高兴 快乐
afraid fear scared frightened phobia 害怕 怕
angry mad annoyed frustrated 生气
like love enjoy fond adore favorite favourite hobby hobbies interest interested passion 喜欢 爱 爱好 兴趣
hate dislike 讨厌
want wish hope goal dream plan plans planning intend 想 希望 打算 计划 目标 梦想
decide decided choose chose choice decision 决定 选择
start started begin began beginning 开始
finish finished complete completed end ended 完成 结束
buy bought purchase purchased shop shopping store 买 购物 商店
sell sold sale 卖
money price cost pay paid salary budget 钱 价格 工资 预算
gift present presents 礼物
book books novel novels reading read author 书 小说 看书 读书
write writing writer wrote writes script screenplay story journal blog 写作 写
movie movies film films cinema watch watched 电影
music song songs band concert album 音乐 歌 演唱会
instrument piano guitar violin clarinet drums 乐器 钢琴 吉他
dance dancing dancer ballet 跳舞 舞蹈
art painting paint painted draw drawing sketch canvas artwork 画 画画 艺术
photo picture photograph photography camera 照片 拍照 摄影 相机
craft pottery clay ceramics sculpture knit knitting 手工 陶艺
game games gaming gamer videogame console tournament 游戏 比赛
win won prize award victory champion 赢 获奖
computer laptop software app coding programming 电脑 软件 编程
phone call called mobile 手机 电话
email letter message text mail 邮件 信 消息
meet met meeting meetup gathering 见面 会议 开会
party celebrate celebrated celebration birthday festival 聚会 庆祝 生日 派对
event conference workshop seminar parade 活动 大会
group community club organization 社区 团体 俱乐部
volunteer volunteered volunteering charity donate donation fundraiser 志愿者 慈善 捐
support help helped helping assist advice 帮助 支持 建议
counseling counselor therapy therapist mental psychological 心理咨询 心理
adopt adopted adoption agency 领养 收养
rain snow weather sunny storm 天气 下雨 下雪
garden gardening plant plants flower flowers 花园 花 植物
clothes dress shirt shoes outfit fashion necklace jewelry 衣服 鞋
religion church faith religious pray 教堂 信仰
war army military soldier veteran 军队
law legal lawyer police 律师 法律
age old young year years birthday 岁 年龄
name called named nickname 名字 叫
morning dawn sunrise breakfast 早上 早晨
evening night sunset tonight 晚上 夜
weekend saturday sunday 周末 周六 周日
monday 周一 星期一
tuesday 周二 星期二
wednesday 周三 星期三
thursday 周四 星期四
friday 周五 星期五
when date yesterday today tomorrow ago last next week month weekend recently 什么时候 昨天 今天 明天
where place location city town country 哪里 哪儿 地方
many number several few two three four five 多少 几个
"""


def _by_word() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for line in _FAMILIES.strip().splitlines():
        family, *others = line.split()
        for word in (family, *others):
            name = word if words.is_cjk(word) else words.stem(word)
            families = found.setdefault(name, [])
            if family not in families:
                families.append(family)
    return {word: tuple(families) for word, families in found.items()}


_BY_WORD = _by_word()
_CHARS_MAX = max(len(word) for word in _BY_WORD if words.is_cjk(word))


def of_stem(stem: str) -> tuple[str, ...]:
    """Return the families of an English stem; most stems have none."""
    return _BY_WORD.get(stem, ())


def of_cjk(run: str) -> Iterator[str]:
    """Return the families of the words in a run of CJK characters, the longest word at each position."""
    position = 0
    while position < len(run):
        for length in range(min(_CHARS_MAX, len(run) - position), 0, -1):
            families = _BY_WORD.get(run[position : position + length])
            if families:
                yield from families
                position += length - 1
                break
        position += 1
