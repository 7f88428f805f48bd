// SPDX-License-Identifier: MIT

package zookeeper

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/diana-limiter/diana/source"
)

// A message is its size in four bytes, and then its fields: whole numbers of four or eight bytes
// in network order, and texts with their size in front. ZooKeeper calls this format Jute.
//
// A request begins with a number and the kind of call. The answer begins with the same number,
// the last transaction of the server, and a code. Some numbers have a meaning of their own.
const (
	numberOfEvent int32 = -1
	numberOfPing  int32 = -2
	numberOfAuth  int32 = -4
)

// call is a kind of request.
type call int32

const (
	callCreate call = 1
	callExists call = 3
	callGet    call = 4
	callSet    call = 5
	callSync   call = 9
	callPing   call = 11
	callAuth   call = 100
	callClose  call = -11
)

// code is why a server refuses a call.
type code int32

const (
	codeNoNode     code = -101
	codeNoAuth     code = -102
	codeBadVersion code = -103
	codeNodeExists code = -110
	codeAuthFailed code = -115
)

func (c code) Error() string {
	switch c {
	case codeNoNode:
		return "ZooKeeper: the node does not exist"
	case codeNoAuth:
		return "ZooKeeper: the node does not allow this: expected the username and the password of a user in its ACL"
	case codeNodeExists:
		return "ZooKeeper: another program has just created the node"
	case codeAuthFailed:
		return "ZooKeeper: authentication failed"
	}
	return fmt.Sprintf("ZooKeeper: error %d", int32(c))
}

const (
	sizeBytes = 4 // of a size

	// largestSession is the size of the largest answer to a request for a session.
	largestSession = 64

	// largestMessage is the size of the largest other message: a document and what ZooKeeper
	// adds to it.
	largestMessage = source.MaxSize + 16<<10

	// largestPossible is more than ZooKeeper sends. A larger size is that of another protocol.
	largestPossible = 256 << 20

	// largestByDefault is the size of the largest request that ZooKeeper accepts if its
	// jute.maxbuffer has the default.
	largestByDefault = 0xfffff
)

func appendInt(b []byte, n int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }

func appendLong(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(appendInt(b, int32(len(text))), text...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// sized returns a message with its size in front.
func sized(body []byte) []byte { return appendText(nil, body) }

func request(number int32, call call, body []byte) []byte {
	return sized(append(appendInt(appendInt(nil, number), int32(call)), body...))
}

// sessionRequest asks for a new session. It is the first message and has no header.
func sessionRequest(timeout time.Duration) []byte {
	b := appendInt(nil, 0) // version of the protocol
	b = appendLong(b, 0)   // the last transaction that this client has seen
	b = appendInt(b, int32(timeout.Milliseconds()))
	b = appendLong(b, 0)                // session: a new one
	b = appendText(b, make([]byte, 16)) // its password
	return sized(appendBool(b, false))  // a member without a leader must refuse
}

func authRequest(scheme string, credentials []byte) []byte {
	return appendText(appendText(appendInt(nil, 0), scheme), credentials)
}

func pathRequest(path string) []byte { return appendText(nil, path) }

func watchRequest(path string) []byte { return appendBool(pathRequest(path), true) }

// anyVersion makes a setRequest replace the text of a node of any version.
const anyVersion int32 = -1

func setRequest(path string, text []byte, version int32) []byte {
	return appendInt(appendText(pathRequest(path), text), version)
}

// createRequest gives all rights to the user of the session if owned, and otherwise to everybody.
func createRequest(path string, text []byte, owned bool) []byte {
	const allRights, persistent = 31, 0
	b := appendText(pathRequest(path), text)
	b = appendInt(appendInt(b, 1), allRights) // one entry
	if owned {
		b = appendText(appendText(b, "auth"), "")
	} else {
		b = appendText(appendText(b, "world"), "anyone")
	}
	return appendInt(b, persistent)
}

// message is what is left to read of an answer.
type message struct {
	rest []byte
	bad  bool // a field was not there
}

// take returns the next n bytes, or nil if there are fewer.
func (m *message) take(n int) []byte {
	if n < 0 || n > len(m.rest) {
		m.bad, m.rest = true, nil
		return nil
	}
	b := m.rest[:n]
	m.rest = m.rest[n:]
	return b
}

func (m *message) int() int32 {
	if b := m.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (m *message) long() int64 {
	if b := m.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// bytes returns a text. A node without a text has a size of -1.
func (m *message) bytes() []byte {
	return m.take(max(0, int(m.int())))
}

// header reads the header of an answer.
func (m *message) header() (number int32, failure code) {
	number = m.int()
	m.long() // the last transaction of the server
	return number, code(m.int())
}

// session reads the answer to a sessionRequest.
func (m *message) session() (timeout time.Duration, session int64) {
	m.int() // version of the protocol
	timeout = time.Duration(m.int()) * time.Millisecond
	session = m.long()
	m.bytes() // its password
	return timeout, session
}

// transaction reads the transaction that has changed the node last.
func (m *message) transaction() int64 {
	m.long() // the one that has created the node
	return m.long()
}

// version reads how often the text of the node was changed. It follows the transaction.
func (m *message) version() int32 {
	m.long() // when the node was created
	m.long() // when it was changed
	return m.int()
}

// sizeOf returns the size that a message begins with.
func sizeOf(head []byte) int { return int(int32(binary.BigEndian.Uint32(head))) }
