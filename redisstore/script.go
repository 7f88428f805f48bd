// SPDX-License-Identifier: MIT

package redisstore

import (
	"crypto/sha1" // it is what Redis names scripts by
	_ "embed"     // the driver
	"encoding/hex"
	"strings"
)

//go:embed driver.lua
var driver string

// script is the text that decides batches, and the name that Redis knows it by.
type script struct{ text, sha string }

// newScript puts the algorithms' sources in front of the driver.
func newScript(sources []string) *script {
	var b strings.Builder
	b.WriteString(receiptsLua)
	b.WriteString("local gateway, lease\nlocal scripts = {\n")
	for _, source := range sources {
		b.WriteString("(function()\n")
		b.WriteString(source)
		b.WriteString("\nend)(),\n")
	}
	b.WriteString("}\n")
	b.WriteString(driver)
	return plainScript(b.String())
}

func plainScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}
