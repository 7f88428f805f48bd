// SPDX-License-Identifier: MIT

package config

import (
	"fmt"
	"slices"

	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/rule"
	"go.yaml.in/yaml/v4"
)

// refusalForms are the forms of refusals, the default first.
var refusalForms = []string{"problem", "openai", "anthropic", "gemini", jsonRPC, "auto"}

// jsonRPC is the form that can have a status.
const jsonRPC = "jsonrpc"

// readRefusal reads the form of refusals of an entry.
func readRefusal(v value, e *rule.Entry) {
	if !v.given() {
		return
	}
	if v.node.Kind == yaml.MappingNode {
		v.form = refusalKeys
		e.Refusal = jsonRPC
		if status := v.mapping().get(jsonRPC).mapping().get("status"); status.given() {
			e.CallStatus = int(status.whole())
		}
		return
	}
	switch i := slices.IndexFunc(refusalForms, v.is); {
	case i < 0:
		v.expected(yamltext.Join(refusalForms, "or"), refusalForms...)
	case i > 0:
		e.Refusal = refusalForms[i]
	}
}

// checkRefusal returns an error if the form of refusals of an entry, which a program has made, is not valid.
func checkRefusal(e *rule.Entry) error {
	switch {
	case e.Refusal != "" && !slices.Contains(refusalForms[1:], e.Refusal):
		return fmt.Errorf("refusal is %q, expected one of %q", e.Refusal, refusalForms[1:])
	case e.CallStatus != 0 && e.Refusal != jsonRPC:
		return fmt.Errorf("refusal %q has a CallStatus, which only jsonrpc has", e.Refusal)
	case e.CallStatus != 0:
		return inRange("refusal: status", int64(e.CallStatus), rpcStatusForm)
	}
	return nil
}

// refusalForm is the form of how refusals are written: a word, or jsonrpc with a status.
type refusalForm struct{}

func (refusalForm) draw(d *drawing) object {
	return object{"anyOf": []object{{"enum": refusalForms, "default": refusalForms[0]}, refusalKeys.draw(d)}}
}
