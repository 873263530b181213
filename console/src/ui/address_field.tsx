// A field whose value is a part of the address, once it is entered.

import { useLayoutEffect, useRef } from "preact/hooks";

import { go, useAddress } from "../core/router";

interface Props {
  label: string;
  /** In the address. */
  name: string;
  type?: "text" | "date" | "number";
  /** Where the address has none. */
  initial?: string;
  hideLabel?: boolean;
  min?: number;
  max?: number;
  step?: number;
}

export function AddressField({ label, name, type = "text", initial = "", hideLabel = false, ...range }: Props) {
  const address = useAddress();
  const value = address.get(name) ?? initial;
  const field = useRef<HTMLInputElement>(null);
  // Since the address was last written.
  const isTyped = useRef(false);
  const show = () => {
    if (field.current) field.current.value = value;
  };
  useLayoutEffect(() => {
    // Back, or a link; not over what is being typed.
    if (!isTyped.current) show();
  }, [value]);
  // The types of Preact want one literal type.
  const kind = { type, ...range } as { type: "number" };
  return (
    <label class="field">
      <span class={hideLabel ? "hidden-text" : "label"}>{label}</span>
      <input
        ref={field}
        autocomplete="off"
        spellcheck={false}
        defaultValue={value}
        placeholder={hideLabel ? label : undefined}
        {...kind}
        onInput={() => {
          isTyped.current = true;
        }}
        onChange={(event) => {
          isTyped.current = false;
          go(address.with({ [name]: event.currentTarget.value }), { replace: true });
        }}
        onBlur={() => {
          isTyped.current = false;
          show();
        }}
      />
    </label>
  );
}
