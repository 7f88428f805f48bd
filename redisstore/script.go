// SPDX-License-Identifier: MIT

package redisstore

import (
	"crypto/sha1" // Redis names scripts by it
	_ "embed"     // the Lua sources
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

//go:embed short.lua
var shortLua string

//go:embed driver.lua
var driverLua string

// scripts are the sources of the algorithms in use, and the script that has all of them.
type scripts struct {
	mu      sync.Mutex             // guards sources, and changes of script
	sources []source               // by number, from 1
	script  atomic.Pointer[script] // of them all
}

// source is the text of an algorithm, and its short text or "", see limit.Script.
type source struct{ text, short string }

// number returns the number of a source, and makes it a part of the script.
func (s *scripts) number(text, short string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, have := range s.sources {
		if have.text == text {
			return i + 1
		}
	}
	s.sources = append(s.sources, source{text, short})
	s.script.Store(newScript(s.sources))
	return len(s.sources)
}

// script is the text of a script, and the name by which Redis knows it.
type script struct{ text, sha string }

// newScript joins the algorithms' sources and what decides by them.
func newScript(sources []source) *script {
	var texts, shorts strings.Builder
	texts.WriteString("local scripts = {\n")
	for i, source := range sources {
		fmt.Fprintf(&texts, "function()\n%s\nend,\n", source.text)
		if source.short != "" {
			fmt.Fprintf(&shorts, "if script == %d then\n%s\nend\n", i+1, source.short)
		}
	}
	texts.WriteString("}\n")
	short := strings.NewReplacer("--@algorithms\n", texts.String(), "--@short\n", shorts.String()).Replace(shortLua)
	return plainScript(receiptsLua + short + driverLua)
}

func plainScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}
