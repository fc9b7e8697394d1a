#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# TuneD calls it with start, stop or verify when the profile is loaded, unloaded or verified.
case $1 in
start) exec fusetune apply --all ;;
stop) exec fusetune reset --all --keep-saved ;;
verify) exec fusetune verify ;;
esac
