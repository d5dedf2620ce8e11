import pickle
from meshcast.programs.pytorch.inductor import Compiled
from meshcast.programs.pytorch.hosted import compiled_host,_plans
row,f,rec=pickle.load(open('/work/dev/tmp-torch/recs/tv_mobilenet_v2_train_amp.compiled.pkl','rb'))
c=Compiled(rec);L=c.launches();W=compiled_host(rec,L)
print([sum(w[i] for w in W) for i in range(11)], len(L))
for l,w in list(zip(L,W))[60:90]: print(l.name,l.op,w)
