"""Mistakes that type checkers must find: one in each line that is marked."""

import gpubufd
import gpubufd.cluster

client = gpubufd.connect(timeout="5")  # wrong
client.put(5, [1])  # wrong
client.put("a")  # wrong
client.put("a", [1], evict="spil")  # wrong
client.put("a", [1], scope="world")  # wrong
client.get("a", None)  # wrong
client.get_many(["a"], errors="rais")  # wrong
client.expire("a", 60)  # wrong
client.create("t", {"x": "f4"}, 3).strides  # wrong
client.create("a", "f4", 3).names  # wrong
client.get("a").whatever  # wrong
client["a"].shap  # wrong
client["a"]["x"].nul_count  # wrong
client.get_many(["a"])[0].nbyte  # wrong
client.ref("a").get().to_panda()  # wrong
client.claim("a").generaton  # wrong
client.open("a", write=True).writ([1])  # wrong
client.edit("a").sel()  # wrong
with client.stream("s", "f4", (3,)) as writer:
    writer.next().numbr  # wrong
    writer.nxt()  # wrong
with client.read("s") as reader:
    reader.read().aray  # wrong
with client.follow("m") as view:
    view.valu  # wrong
    view["w"].to_nump()  # wrong
client.get("a", kind=gpubufd.Array).columns  # wrong
client.get("a", kind=int)  # wrong
client.get(5)  # wrong
client.put("a", [1]).get("x")  # wrong
client.list(5)  # wrong
client.stat("a").byte  # wrong
client.watch("a", timeout="x")  # wrong
client.delete(1)  # wrong
table: gpubufd.Table = client.get("t")
table.select(1)  # wrong
table.names.append(5)  # wrong
table.column  # wrong
table["a"].names  # wrong
table[0:2].strides  # wrong
gpubufd.Array()  # what is made by hand is found out when it runs
gpubufd.Tabel  # wrong
gpubufd.cluster.where(5)  # wrong
gpubufd.cluster.peers()[0].nod  # wrong
