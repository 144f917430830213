// Sends frames through a running txq: socket_send PATH COUNT [LENGTH [PRIORITY [TAG]]].
//
// A client on the standard library alone, after docs/socket.md. Run: go run socket_send.go /run/txq/lan.sock 1000
//
// Each frame is an Ethernet frame of the experimental type 0x88b5, with the tag, a number that counts up from 0, and bytes that follow
// from the number.
package main

import (
	"encoding/binary"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Offsets in the memory.
const (
	slotsAt       = 8
	strideAt      = 12
	dataAt        = 16
	frameMaxAt    = 24
	producer      = 128
	producerWaits = 132
	consumer      = 256
	consumerWaits = 260
	descriptors   = 512
)

type client struct {
	conn                *net.UnixConn
	memory              []byte
	slots, stride, data uint32
	frameMax, head      uint32
}

// word returns a word of the memory. Go's atomics are sequentially consistent: a store and a later load of another word stay in
// order, as the protocol's fences demand.
func (c *client) word(at uint32) *uint32 {
	return (*uint32)(unsafe.Pointer(&c.memory[at]))
}

func (c *client) load(at uint32) uint32 { return atomic.LoadUint32(c.word(at)) }

// connect receives the welcome and maps the memory.
func connect(path string) (*client, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	welcome, control := make([]byte, 16), make([]byte, syscall.CmsgSpace(4))
	n, controlLen, _, _, err := conn.ReadMsgUnix(welcome, control)
	if err != nil {
		return nil, err
	}
	order := binary.NativeEndian
	if n != 16 || string(welcome[:4]) != "TXQS" || order.Uint32(welcome[4:]) != 1 {
		return nil, fmt.Errorf("a wrong welcome: %v", welcome[:n])
	}
	if reason := order.Uint32(welcome[8:]); reason != 0 {
		return nil, fmt.Errorf("refused: reason %d", reason)
	}
	messages, err := syscall.ParseSocketControlMessage(control[:controlLen])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("a welcome without memory: %v", err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("a welcome without memory: %v", err)
	}
	defer syscall.Close(fds[0])
	size := int(order.Uint32(welcome[12:]))
	memory, err := syscall.Mmap(fds[0], 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, memory: memory}
	c.slots, c.stride = c.load(slotsAt), c.load(strideAt)
	c.data, c.frameMax = c.load(dataAt), c.load(frameMaxAt)
	return c, nil
}

func (c *client) full() bool { return c.head-c.load(consumer) >= c.slots }

// waitForRoom sleeps while the ring is full.
func (c *client) waitForRoom() error {
	bytes := make([]byte, 64)
	for c.full() {
		atomic.StoreUint32(c.word(producerWaits), 1)
		if !c.full() {
			atomic.StoreUint32(c.word(producerWaits), 0)
			return nil
		}
		n, err := c.conn.Read(bytes)
		if err != nil {
			return fmt.Errorf("the server is gone: %w", err)
		}
		for _, reason := range bytes[:n] {
			if reason != 0 {
				return fmt.Errorf("the server ended: reason %d", reason)
			}
		}
	}
	return nil
}

func (c *client) send(frame []byte, priority uint32) error {
	if err := c.waitForRoom(); err != nil {
		return err
	}
	slot := c.head & (c.slots - 1)
	offset := slot * c.stride
	copy(c.memory[c.data+offset:], frame)
	descriptor := c.memory[descriptors+16*slot:]
	for i, word := range []uint32{offset, uint32(len(frame)), priority, 0} {
		binary.NativeEndian.PutUint32(descriptor[4*i:], word)
	}
	c.head++
	atomic.StoreUint32(c.word(producer), c.head)
	if atomic.LoadUint32(c.word(consumerWaits)) != 0 {
		atomic.StoreUint32(c.word(consumerWaits), 0)
		if _, err := c.conn.Write([]byte{0}); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("use: socket_send PATH COUNT [LENGTH [PRIORITY [TAG]]]")
	}
	numbers := []uint64{1, 60, 0, 0}
	for i, text := range os.Args[2:] {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || i >= len(numbers) {
			log.Fatalf("%q: use a number", text)
		}
		numbers[i] = n
	}
	c, err := connect(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	count, length := uint32(numbers[0]), numbers[1]
	if length < 23 || length > uint64(c.frameMax) {
		log.Fatalf("a frame of %d bytes: use 23 to %d", length, c.frameMax)
	}
	frame := make([]byte, length)
	copy(frame, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x88\xb5")
	frame[18] = byte(numbers[3])
	for n := uint32(0); n < count; n++ {
		binary.BigEndian.PutUint32(frame[14:], n)
		for at := 19; at < len(frame); at++ {
			frame[at] = byte(n + uint32(at))
		}
		if err := c.send(frame, uint32(numbers[2])); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(count, "frames")
}
