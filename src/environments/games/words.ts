/** Common English words of three, four and five letters, for `wordle`. */
const three = `
ace act add age air ant ape arm art ash ask axe bad bag ban bar bat bay bed bee bet big bin bit box boy bud bug bus
but buy cab can cap car cat cow cry cub cup cut dad day den dig dim dip dog dot dry due ear eat egg elf end eye fan
far fat few fig fin fit fix fly fog fox fun fur gap gas gem get gum gun gut guy ham hat hay hen hid hip hit hot hug
hut ice ink jam jar jaw jet job jog joy jug key kid kit lab lap law leg let lid lip log lot low mad man map mat mix
mob mop mud mug net new nod nut oak oat odd oil old one owl own pan paw pay pea pen pet pie pig pin pit pod pot pup
rag ram rat raw red rib rim rob rod row rug run sad saw sea see set sew shy sip sit six sky sob son sun tap tar tea
ten tie tin tip toe ton top toy try tub tug two use van vet wag wax way web wet win wit yes zip zoo`;
const four = `
able acid army away baby back ball band bank barn bath beam bean bear beef bell belt best bird bite blue boat body
bolt bone book boot born bowl bulb bush cafe cage cake calm camp card care cart case cash cave chin city clay club
coal coat code coin cold comb cook copy cord corn crab crew crop dark date deal dear deep deer desk dirt dish dive
door dove down draw drum duck dust duty east easy edge evil face fact fair fall farm fast fear feed film find fire
fish flag flat foam fold food foot fork four free frog fuel full game gate gift girl glad glue goat gold good gray
grow gulf hair half hall hand harp heat herb hero hide high hill hint hole home hook hope horn host hour huge idea
inch iron jazz join joke jump june jury just keen kick kind king kite knee knob knot lace lake lamb lamp land lane
last lawn leaf left life lift lime line lion list loaf lock long loud love luck lung mail main male many mark mask
meal meat melt menu milk mind mint moon more moth move mule nail name navy near neck nest news nice nine noon nose
note oven over pack page pair palm park path peak pear pink pipe plan play plow plum poem pole pond pony pool port
post pull pump pure race rail rain rest rice rich ride ring ripe road rock roof room root rope rose ruby rule safe
sail salt sand seal seed shed ship shoe shop sign silk sing sink skin slow snow soap sofa soil song soup spin star
stem step stop suit swan swim tail tall tank tape team tent tide tile time tiny toad tone tool town tray tree trip
tube tuna turn twin type unit vase vest view vine vote wall warm wash wave wild wind wine wing wolf wood wool word
worm yard year zero zone`;
const five = `
about above actor adult agent agree album alive alone amber angel anger ankle apple apron arena arrow aside bacon
badge basic basin beach beard beast begin bench berry birth black blade blame bland blank blaze blend block bloom
board boost brain brave bread break brick bride brief bring broad brook broom brown brush build bunch cabin cable
camel canal candy canoe cargo carol carry catch cause chain chair chalk charm chase cheap cheek cheer chess chest
chief child chill choir chord civil claim class clean clear clerk cliff climb clock cloth cloud clown coach coast
color coral couch count court cover crane crash cream creek crime crisp crowd crown crust curve daily dairy dance
delay depth diary dirty ditch dozen draft drain drama dream dress drift drink drive eagle early earth elbow empty
enemy enjoy entry equal event extra fable faith false fancy feast fence ferry fever field fifty fight final flame
flash fleet flesh float flock flood floor flour fluid flute focus force forty frame fresh front frost fruit funny
ghost giant glass globe glory glove grace grade grain grand grape grass grave great green group guard guest guide
habit happy harsh heart heavy hedge hobby honey horse hotel house human humor ideal image index inner ivory jelly
jewel joint judge juice knife label labor large laugh layer lemon level light limit linen liver lobby local logic
loose lucky lunch magic major maple march match medal melon mercy merry metal minor model money month motor mount
mouse mouth movie music night noble noise north novel nurse ocean offer olive onion opera orbit order organ other
outer owner paint panel paper party pasta patch peace peach pearl pedal penny phone photo piano piece pilot pizza
place plain plane plant plate point polar porch pound power press price pride prize proof proud pupil queen quick
quiet radio raise ranch range rapid ready rider river robin robot rough round route royal ruler rural salad salty
sauce scale scarf scene score scout sense shade shape share shark sharp sheep sheet shelf shell shine shirt shore
short shout silly skate skill sleep slice slide slope small smart smell smile smoke snack snake solid sound south
space spare speak speed spend spice spoon sport staff stage stair stamp stand start steak steam steel stone stool
storm story stove straw style sugar sunny sweet sword table taste teach thank theme thick thing thumb tiger tired
title toast today tooth topic total touch tough tower trace track trade trail train treat trend trial tribe trick
truck trust truth twist uncle under union upper urban usual valid value video visit vital vivid voice wagon waist
watch water weigh whale wheat wheel white whole woman world worry wound wrist write young youth zebra`;

const listed = (text: string) => text.trim().split(/\s+/);

export const words = { 3: listed(three), 4: listed(four), 5: listed(five) } as const;
