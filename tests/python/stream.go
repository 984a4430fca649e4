// A reader and a writer of streams, written from docs/PROTOCOL*.md alone: neither libgpubuf nor C.
//
//	stream write NAME SLOTS BYTES  publishes a frame full of each number that stdin has a line of; prints the frame's number
//	stream read NAME LAG           takes a frame at a line of stdin, gives it back at the next; LAG 0: the newest
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const page, out, read, write = 16384, uint64(1) << 63, syscall.PROT_READ, syscall.PROT_READ | syscall.PROT_WRITE

type params map[string]any

var daemon, lines, nap = 0, bufio.NewScanner(os.Stdin), syscall.Timespec{Nsec: 100_000_000}
var fds []int // that came with the last answer

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// The number there in an answer; 0: there is none.
func num(v any, path ...any) int {
	for _, p := range path {
		if name, ok := p.(string); ok {
			v = v.(map[string]any)[name]
		} else {
			v = v.([]any)[p.(int)]
		}
	}
	number, _ := v.(float64)
	return int(number)
}

func call(method string, p params) any {
	text := must(json.Marshal(params{"jsonrpc": "2.0", "id": 1, "method": method, "params": p}))
	must(syscall.Write(daemon, append(text, '\n')))
	fds = nil
	for text = nil; len(text) == 0 || text[len(text)-1] != '\n'; {
		part, control := make([]byte, 1<<16), make([]byte, syscall.CmsgSpace(16*4))
		n, c, _, _, err := syscall.Recvmsg(daemon, part, control, syscall.MSG_CMSG_CLOEXEC)
		text = append(text, part[:must(n, err)]...)
		for _, m := range must(syscall.ParseSocketControlMessage(control[:c])) {
			fds = append(fds, must(syscall.ParseUnixRights(&m))...)
		}
	}
	reply := params{}
	must(0, json.Unmarshal(text, &reply))
	return reply["result"]
}

func max(a, b uint64) uint64 {
	if a > b {
		return a
	}
	return b
}

func mapped(fd, bytes, protection int) []byte {
	defer syscall.Close(fds[fd])
	return must(syscall.Mmap(fds[fd], 0, bytes, protection, syscall.MAP_SHARED))
}

func get32(p []byte, at int) uint32    { return atomic.LoadUint32((*uint32)(unsafe.Pointer(&p[at]))) }
func get64(p []byte, at int) uint64    { return atomic.LoadUint64((*uint64)(unsafe.Pointer(&p[at]))) }
func set32(p []byte, at int, v uint32) { atomic.StoreUint32((*uint32)(unsafe.Pointer(&p[at])), v) }
func set64(p []byte, at int, v uint64) { atomic.StoreUint64((*uint64)(unsafe.Pointer(&p[at])), v) }

func futex(p []byte, at, operation int, value uint32) uintptr {
	word, time := uintptr(unsafe.Pointer(&p[at])), uintptr(unsafe.Pointer(&nap))
	n, _, _ := syscall.Syscall6(syscall.SYS_FUTEX, word, uintptr(operation), uintptr(value), time, 0, 0)
	return n
}

// Opens the stream and joins it: its slots, the page of one's own, the roster, and the answer.
func join(p params, protection int, part params) (slots [][]byte, own, roster []byte, a any) {
	a = call("open", p)
	part["lease"] = num(a, "lease")
	all := mapped(num(a, "segments", 0, "handle", "fd"), num(a, "segments", 0, "bytes"), protection)
	begin, bytes := num(a, "object", "layout", "data", "offset"), num(a, "object", "layout", "shape", 1)
	for s := 0; s < num(a, "object", "layout", "shape", 0); s++ {
		slots = append(slots, all[begin+s*bytes:begin+(s+1)*bytes])
	}
	a = call("join", part)
	return slots, mapped(num(a, "page"), page, write), mapped(num(a, "roster"), page, read), a
}

func writer(name string, slots, bytes int) {
	layout := params{"kind": "array", "dtype": "uint8", "shape": []int{slots, bytes}}
	call("release", params{"lease": num(call("create", params{"name": name, "layout": layout, "live": true}), "lease")})
	part := params{}
	content, front, roster, a := join(params{"name": name, "access": "write", "exclusive": true, "segments": "all"}, write, part)
	head, newest, numbers, claims := uint64(num(a, "writer"))<<40, -1, make([]uint64, slots), map[int][]byte{}
	add := func() {
		for _, one := range a.(map[string]any)["claims"].([]any) {
			claims[num(one, "reader")] = mapped(num(one, "fd"), page, read)
		}
	}
	for add(); lines.Scan(); {
		busy, kept, victim := map[int]bool{}, ^uint64(0), -1
		for victim < 0 {
			for s := range numbers { // the lowest that is neither the newest, busy nor kept
				if s != newest && !busy[s] && numbers[s] < kept && (victim < 0 || numbers[s] < numbers[victim]) {
					victim = s
				}
			}
			for set64(front, 1088+64*victim, numbers[victim]|out); uint32(num(a, "epoch")) != get32(roster, 8); add() {
				part["since"] = num(a, "epoch")
				a = call("join", part)
			}
			busy, kept = map[int]bool{}, ^uint64(0)
			for i := 0; i < 64; i++ {
				active := get64(roster, 0)>>i&1 == 1
				for s, may := 0, roster[20+i]; active && s < slots && may > 0; s++ {
					if get64(claims[i], s/64*8)>>(s%64)&1 == 1 {
						busy[s], may = true, may-1
					}
				}
				if !active || get64(claims[i], 16) == 0 {
					continue
				}
				if oldest := max(get64(claims[i], 16), head+1-uint64(roster[84+i])); oldest < kept {
					kept = oldest
				}
			}
			if busy[victim] || numbers[victim] >= kept {
				set64(front, 1088+64*victim, numbers[victim])
				victim = -1
			}
		}
		for i, value := 0, must(strconv.Atoi(lines.Text())); i < bytes; i++ {
			content[victim][i] = byte(value)
		}
		head++
		set64(front, 1088+64*victim+8, uint64(bytes))
		set64(front, 1088+64*victim, head)
		set64(front, 64+int(head%128)*8, head<<7|uint64(victim))
		set64(front, 0, head<<7|uint64(victim))
		set32(front, 8, uint32(head))
		numbers[victim], newest = head, victim
		for i, claim := range claims {
			if get64(roster, 0)>>i&1 == 1 && get32(claim, 40) == 1 && futex(claim, 40, 1, 1) == 0 {
				futex(front, 8, 1, 1)
			}
		}
		println(head & (out>>23 - 1))
	}
}

func reader(name string, lag int) {
	part := params{"lag": lag}
	content, claim, roster, _ := join(params{"name": name}, read, part)
	front, w, last := make([]byte, page), uint32(0), uint64(0)
	for want, more := uint64(1), lines.Scan(); more; {
		if lag > 0 {
			set64(claim, 16, want)
		}
		if now := get32(roster, 12); now != w && now != get32(roster, 16) {
			part["since"] = w
			a := call("join", part)
			front, w = mapped(num(a, "front"), page, read), uint32(num(a, "writer"))
			want = uint64(w)<<40 | 1
			if last == 0 {
				want = max(want, get64(front, 0)>>7)
			}
			last = want - 1
			continue
		}
		bell, newest := get32(front, 8), get64(front, 0)>>7
		if newest <= last {
			if w != 0 && get32(roster, 16) == w && get64(front, 0)>>7 == newest {
				return
			}
			set32(claim, 40, 1)
			if get32(front, 8) == bell && get32(roster, 12) == w && get32(roster, 16) != w {
				futex(front, 8, 0, bell)
			}
			set32(claim, 40, 0)
			continue
		}
		n := max(last+1, newest-127)
		if lag == 0 {
			n = newest
		}
		for ; n <= newest && last < n; n++ {
			entry := get64(front, 64+int(n%128)*8)
			s := int(entry & 127)
			if entry>>7 != n || s >= len(content) {
				continue // it is lost
			}
			set64(claim, s/64*8, 1<<(s%64))
			if get64(front, 1088+64*s) == n && get32(roster, 12) == w {
				println(n&(out>>23-1), n-last-1, content[s][0], get64(front, 1088+64*s+8))
				last, want = n, n+1
				lines.Scan() // it is held until then
				println(content[s][0], content[s][len(content[s])-1])
				more = lines.Scan()
			}
			set64(claim, s/64*8, 0)
		}
	}
}

func main() {
	daemon = must(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))
	must(0, syscall.Connect(daemon, &syscall.SockaddrUnix{Name: os.Getenv("GPUBUFD_SOCKET")}))
	if number := must(strconv.Atoi(os.Args[3])); len(os.Args) == 4 {
		reader(os.Args[2], number)
	} else {
		writer(os.Args[2], number, must(strconv.Atoi(os.Args[4])))
	}
}
