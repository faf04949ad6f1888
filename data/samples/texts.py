"""The words of the samples: our own, CC0-1.0."""

HARBOUR = """The Harbour Clock

The clock above the harbour office has been slow for as long as anyone can remember. It loses about four minutes a week, and every Monday morning the harbour master climbs the ladder with a brass key and puts it right. Visitors ask why nobody repairs it. The answer is that the ferry captains have learned to live with the error, and a clock that was suddenly exact would make half of them early.

In spring the town council voted to buy a new movement. The watchmaker from the next valley came, listened to the old one for an hour, and refused the work. "It is not broken," she said. "The pendulum hangs on a beam that swells when the tide is high. Your clock is not late. It is measuring the sea."

After that the harbour master kept a notebook. Every Monday he wrote down how many minutes the clock had lost, and beside it the height of the highest tide of the week. By autumn there were thirty pages, and the two columns rose and fell together. The school asked for a copy. The children drew the numbers as a curve, and on the last day of October they walked down to the quay to see whether the curve was right about the storm.

It was right to within one minute. The council spent the money on a second ladder instead.
"""

BEES = """Notes on Keeping Bees on a Roof

A roof is a better place for bees than most gardens. It is dry, it is warm, nobody walks past the entrance, and the flight path begins above the heads of the neighbours. What a roof lacks is shelter from the wind, and a colony that has to spend its strength on heating will not have much left for honey.

Begin with the stand. It should lift the hive by about forty centimetres, lean forward a little so that rain runs out of the entrance, and carry at least one hundred and twenty kilograms. A full super weighs more than people expect. Tie the whole hive down with a strap before the first storm and not after it.

Water matters as much as flowers. In July a strong colony carries home nearly a litre a day. If there is no water on the roof, the bees will find some, and it will be in the pool of the neighbour who likes bees least. A shallow tray with stones in it, filled every morning, keeps the peace.

Look into the hive every nine days from April to July, and write down what you saw: the queen or fresh eggs, the number of brood frames, the weight, the mood. A note takes two minutes. Without notes every inspection is the first one, and the mistakes of last year come back with the swallows.

In autumn take less honey than you could. A colony that starves in March was robbed in September.
"""

ROUTES = """How the Night Bus Was Planned

When the last tram was cancelled, the town asked its students to plan a night bus. There was money for two vehicles and eleven drivers, and for nothing else. The students began with a survey. They asked six hundred people where they had been at two in the morning on the last three Saturdays, and how they had come home. Most had walked. Some had paid for a taxi. A few had not gone out at all, because they did not know how to return, and these few turned out to matter most.

The first plan was a star with seven arms. It looked fair on the map and failed on the first night, because both vehicles were always at the wrong end of an arm. The second plan was a single ring, driven in both directions. A ring is longer for everyone and unfair to no one. The average ride took twenty-three minutes instead of sixteen, but the average wait fell from thirty-one minutes to nine, and people forgive a long ride sooner than a long wait.

After four weeks the counters in the doors told the rest. The stop at the hospital, which the plan had nearly left out, was the third busiest of all. The stop at the stadium was used on two nights and never again. The students moved it four hundred metres, to the bakery that opens at four, and the drivers have had warm bread ever since.
"""

TEA_ZH = """山里的茶

清明前后，山里的雾要到上午十点才散。采茶的人天不亮就出门，背着竹篓，沿着石阶一层一层往上走。最好的茶树长在半山腰，那里的土是红的，石头很多，水留不住，树根只好往深处扎。老人们说，根扎得越深，茶的味道就越长。

采茶只采一芽一叶。手指不能掐，要轻轻往上提，断口才不会发黑。一个熟练的采茶人一天可以采四斤鲜叶，四斤鲜叶只能做一斤干茶。做茶的时候，锅的温度先高后低，手在锅里不停地翻，快了不香，慢了发苦。

村里的学校有一块小黑板，每年春天都写着当天的气温、采茶的人数和收到的鲜叶重量。孩子们放学以后把这些数字抄在本子上，画成一条弯弯曲曲的线。线最高的那一天，往往是下过一夜小雨、第二天又出了太阳的日子。

去年春天下了一场雪，茶芽冻坏了一半。大家以为这一年不会有好茶了，没想到剩下的那一半长得很慢，味道却比哪一年都好。老校长在黑板上写了一行字：慢，也是一种办法。
"""

BRIDGE_ZH = """镇上的木桥

镇子中间有一条河，河上有一座木桥，已经修过很多次。桥板的颜色深深浅浅，新的发黄，旧的发灰，最老的那几块几乎是黑色的。走在上面，每一块板的声音都不一样，住在桥边的人闭着眼睛也听得出是谁走过来了。

春天涨水的时候，管桥的老陈会在桥墩上刻一道线，旁边写上年份。最高的一道是十二年前的，比桥面只低一尺。老陈说，桥不怕水，怕的是水里漂下来的木头，所以每次下大雨，他都带着长竹竿守在桥头，把木头一根一根拨开。

今年镇上想修一座水泥桥。设计的人来量了三天，画了很漂亮的图。开会的时候，有人说木桥又窄又旧，有人说水泥桥太贵。最后大家商量出一个办法：在下游修一座走车的新桥，把木桥留给走路的人。

新桥通车那天，老陈没有去看。他坐在木桥的栏杆边上，换下一块裂了的桥板，钉好最后一颗钉子，然后站起来，从这头走到那头，认真地听了一遍。
"""

GUIDE_MD = """# Field Guide to Small Weather Stations

A weather station is worth only as much as its place and its log book. This guide covers both.

## Choosing a place

- At least **ten metres** from walls and trees
- Short grass below, never stone or tar
- The sensor between *1.25 m* and *2 m* above the ground

## Reading the instruments

1. Read the thermometer first, before your breath warms it.
2. Empty the rain gauge at the same hour each day.
3. Write down the wind direction from which it blows.

| instrument | unit | resolution |
| --- | --- | --- |
| thermometer | degree Celsius | 0.1 |
| rain gauge | millimetre | 0.2 |
| barometer | hectopascal | 0.5 |

## Common mistakes

A sensor in the sun measures the sun. A gauge under a tree measures the tree. A log book with gaps
measures the patience of its owner, which is the most variable quantity of all.

### What to do with gaps

Leave them empty. Never copy the value of the day before, and never write zero for rain that nobody
measured: a missing value and a dry day are different facts.

```python
mean = sum(v for v in values if v is not None) / sum(v is not None for v in values)
```
"""

RECIPE_MD_ZH = """# 家常豆腐的做法

这份菜谱适合两个人，大约需要二十五分钟。

## 材料

- 老豆腐 400 克
- 青椒 1 个，胡萝卜半根
- 木耳 20 克，提前泡发
- 酱油 2 勺，糖半勺，盐少许

## 步骤

1. 豆腐切成一厘米厚的片，用厨房纸吸干水分。
2. 锅里放油，中火把豆腐煎到两面金黄，盛出备用。
3. 用剩下的油炒胡萝卜和木耳，再放青椒。
4. 放回豆腐，加酱油、糖和半碗水，小火煮五分钟。

## 提示

豆腐要煎得干一点，煮的时候才不会碎。青椒最后放，颜色才好看。
"""

REPORT = [
    ("1 Introduction", "This report describes the first year of the repair cafe in the old fire station. "
     "The cafe opens on the first Saturday of each month. Visitors bring things that no longer work, and "
     "volunteers try to repair them together with their owners. Nothing is repaired behind a curtain: the "
     "owner holds the lamp, and next time perhaps the screwdriver."),
    ("2 Numbers", "In twelve months 418 objects were brought in. Of these 263 were repaired, 71 were given "
     "advice and a list of parts, and 84 could not be saved. Toasters were the most frequent guests, followed "
     "by bicycles, lamps and trousers. The average repair took 38 minutes. The oldest object was a radio of "
     "1951, the youngest a kettle of three weeks."),
    ("3 Costs", "The room is free. Tools cost 1,240 in the first year, insurance 310, coffee 295. Donations "
     "came to 2,105. The balance of 260 was spent on a better soldering iron and a first-aid kit, which has "
     "been used once, by the person who repaired the kettle."),
    ("4 Outlook", "Next year the cafe will open twice a month. Two schools have asked to send their science "
     "classes. The volunteers want to publish a list of the objects that failed for the same reason, because "
     "a list of that kind is worth more than any single repair."),
]

MANUAL = [
    ("1 Before First Use", "Unpack the pump and place it on level ground. Check that the seal on the left side "
     "is not damaged. Fill the tank with at least twelve litres of clean water. Never run the pump dry: the seal "
     "is cooled by the water that it moves."),
    ("2 Operation", "Open the inlet before the outlet. Start the motor and wait until the needle of the gauge "
     "stands between two and three bar. If the needle trembles, there is air in the line; close the outlet by "
     "half and wait. Stop the motor before you close the inlet."),
    ("3 Maintenance", "Clean the filter every fifty hours of operation. Replace the seal every two years. Write "
     "both dates on the plate beside the switch. A pump that is cared for lasts thirty years."),
]

LETTER = [
    ("Letter to the Residents", "Dear residents, from Monday the third of March the lift in house B will be "
     "replaced. The work takes nineteen days. During this time a chair lift is available between seven and "
     "twenty-two o'clock; please call the caretaker if you need help with shopping. We are sorry for the noise, "
     "which will be loudest in the first week. The new lift uses a third of the energy of the old one."),
]

AGENDA = [
    ("1 Agenda", "The spring meeting of the choir takes place in the small hall. Members are asked to bring their "
     "own scores. The programme has three parts: old songs in new arrangements, the canon that went wrong in "
     "December, and a piece that nobody has heard before."),
    ("2 Dates", "Rehearsals are on Tuesdays at half past seven. The concert is on the ninth of May. Whoever "
     "misses more than two rehearsals turns pages."),
]

MINUTES = [
    ("Minutes of the Garden Association", "Heading 1"),
    ("Present were fourteen members and one dog. The meeting opened at six in the evening and closed at "
     "twenty to eight. The minutes of the last meeting were accepted without changes.", None),
    ("Water", "Heading 2"),
    ("The well gives 900 litres an hour in spring and 400 in August. It was agreed that plots with even numbers "
     "water on even days. Anna offered to build a float that shows the level from the gate.", None),
    ("Tools", "Heading 2"),
    ("Two spades and the large ladder are missing. A list will hang in the shed. Whoever takes a tool writes down "
     "name and day; whoever brings it back crosses the line out.", None),
]

PLAN = [
    ("Plan for the Reading Room", "Heading 1"),
    ("The reading room will move to the first floor in June. The move has three phases, each of which leaves at "
     "least twenty seats open. The table shows who does what.", None),
    ("Phases", "Heading 2"),
]

PLAN_ZH = [
    ("社区图书室搬迁计划", "Heading 1"),
    ("图书室将在六月搬到二楼。搬迁分为三个阶段，每个阶段至少保留二十个座位。志愿者负责打包和登记，老师负责核对书目。", None),
    ("注意事项", "Heading 2"),
    ("借出的书请在五月底以前归还。儿童书最后搬，周末照常开放。搬迁期间如果有疑问，可以打电话给值班的老师。", None),
]

GREENHOUSE_YAML = """# The greenhouse on the roof.
name: greenhouse
opened: "2023-04-01"
fans: 4
heated: true
limits:
  temperature: [12, 31]
  humidity: {low: 40.5, high: 75}
beds:
  - id: north
    plants: [tomato, basil]
  - id: south
    plants: [cucumber]
    note: |
      Water in the evening.
      Open the flap first.
"""

KIOSK_INI = """; The kiosk at the station.
[general]
name = Platform Kiosk
Opens = 06:30
seats = 12

[prices]
coffee = 2.40
tea: 2.10
bun=1.30

# Who works when.
[staff]
monday = Ines, Paul
sunday =
"""

FERRY = """Dear Ada,

the ferry runs again from the first of April. The new timetable is attached, with the rules for the crew.

See you on the quay,
Jonas
"""

SLIDES = [
    ("The choir in 2024", ["Four concerts", "Two new altos"]),
    ("Spring concert", ["Songs about rivers", "In the old depot"]),
    ("What it cost", ["Room: 480", "Scores: 120", "Posters: 65"]),
    ("Plans for 2025", ["A recording", "A weekend by the sea"]),
]
