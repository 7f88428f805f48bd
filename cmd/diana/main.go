// SPDX-License-Identifier: MIT

// Diana is a gateway that limits requests by rules. It also has commands that check, compare and
// test configurations. See diana --help.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // for rules with a zone; images of containers often have no time zones
)

func main() {
	os.Exit(run(context.Background(), arguments(os.Args), os.Stdout, os.Stderr))
}
