// SPDX-License-Identifier: MIT

// Package command has what several commands of the program share: the configuration that they read, the output
// that they write, the kinds of their errors, and values of flags. It knows no command. Open settings.go first.
package command
