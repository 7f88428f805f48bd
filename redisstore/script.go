// SPDX-License-Identifier: MIT

package redisstore

import (
	"crypto/sha1" // Redis names scripts by it
	_ "embed"     // the Lua sources
	"encoding/hex"
	"strings"
	"sync"
	"sync/atomic"
)

//go:embed lone.lua
var loneLua string

//go:embed driver.lua
var driverLua string

// scripts are the sources of the algorithms in use, and the script that has all of them.
type scripts struct {
	mu      sync.Mutex             // guards sources, and changes of script
	sources []string               // by number, from 1
	script  atomic.Pointer[script] // of them all
}

// number returns the number of a source, and makes it a part of the script.
func (s *scripts) number(source string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, have := range s.sources {
		if have == source {
			return i + 1
		}
	}
	s.sources = append(s.sources, source)
	s.script.Store(newScript(s.sources))
	return len(s.sources)
}

// script is the text of a script, and the name by which Redis knows it.
type script struct{ text, sha string }

// newScript joins the algorithms' sources and what decides by them.
func newScript(sources []string) *script {
	var b strings.Builder
	b.WriteString(receiptsLua)
	b.WriteString("local gateway, lease\nlocal scripts = {\n")
	for _, source := range sources {
		b.WriteString("function()\n")
		b.WriteString(source)
		b.WriteString("\nend,\n")
	}
	b.WriteString("}\n")
	b.WriteString(loneLua)
	b.WriteString(driverLua)
	return plainScript(b.String())
}

func plainScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}
