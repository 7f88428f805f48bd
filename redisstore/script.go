// SPDX-License-Identifier: MIT

package redisstore

import (
	"crypto/sha1" // Redis names scripts by it
	_ "embed"     // the driver
	"encoding/hex"
	"strings"
)

//go:embed driver.lua
var driver string

// script is the text of a script, and the name by which Redis knows it.
type script struct{ text, sha string }

// newScript joins the algorithms' sources and the driver.
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
