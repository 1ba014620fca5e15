(* Two facts about lists without duplicates that the counting arguments share. *)
From Coq Require Import List Arith Lia.
Import ListNotations.

Lemma NoDup_app {A} (a b : list A) :
  NoDup a -> NoDup b -> (forall x, In x a -> ~ In x b) -> NoDup (a ++ b).
Proof.
  induction a as [| z a IH]; cbn; intros Ha Hb H; [ exact Hb | ].
  inversion_clear Ha. constructor.
  - rewrite in_app_iff. intros [? | ?]; [ auto | apply (H z); auto ].
  - apply IH; auto.
Qed.

Lemma NoDup_app_inv {A} (a b : list A) : NoDup (a ++ b) -> NoDup a /\ NoDup b.
Proof.
  induction a as [| x a IH]; cbn; intros H; [ split; [ constructor | exact H ] | ].
  inversion_clear H as [| ? ? Hx H']. destruct (IH H'). split; [ | assumption ].
  constructor; [ | assumption ]. rewrite in_app_iff in Hx. tauto.
Qed.

Lemma NoDup_app_disjoint {A} (a b : list A) x : NoDup (a ++ b) -> In x a -> ~ In x b.
Proof.
  induction a as [| y a IH]; cbn; intros N H; [ contradiction | ].
  inversion_clear N as [| ? ? Hy N']. destruct H as [-> | H]; [ | now apply IH ].
  rewrite in_app_iff in Hy. tauto.
Qed.

(* Lists with different owners are disjoint. *)
Lemma NoDup_flat_map {A P} (owner : A -> P) (f : P -> list A) (ps : list P) :
  NoDup ps -> (forall p, In p ps -> NoDup (f p)) ->
  (forall p x, In p ps -> In x (f p) -> owner x = p) -> NoDup (flat_map f ps).
Proof.
  induction ps as [| p ps IH]; cbn; intros Hp Hf Ho; [ constructor | ].
  inversion_clear Hp as [| ? ? Hn Hp'].
  apply NoDup_app; [ auto | apply IH; auto | ].
  intros x Hx Hx'. apply in_flat_map in Hx' as (p' & Hp & Hx').
  apply Ho in Hx; [ | auto ]. apply Ho in Hx'; [ | auto ]. congruence.
Qed.

Lemma NoDup_map {A B} (f : A -> B) (l : list A) :
  (forall x y, f x = f y -> x = y) -> NoDup l -> NoDup (map f l).
Proof.
  intros Hf. induction 1 as [| x l Hx _ IH]; cbn; constructor; trivial.
  rewrite in_map_iff. intros (y & E & Hy). apply Hf in E. congruence.
Qed.

Lemma NoDup_list_prod {A B} (a : list A) (b : list B) :
  NoDup a -> NoDup b -> NoDup (list_prod a b).
Proof.
  induction 1 as [| x a Hx _ IH]; cbn; intros Hb; [ constructor | ].
  apply NoDup_app; [ apply NoDup_map; [ congruence | exact Hb ] | auto | ].
  intros [y z] Hy Hz. apply in_map_iff in Hy as (? & E & _). injection E as <- <-.
  apply in_prod_iff in Hz as [? _]. auto.
Qed.

Lemma filter_split {A} (f : A -> bool) l :
  length l = length (filter (fun a => negb (f a)) l) + length (filter f l).
Proof. induction l as [| a l IH]; cbn; [ reflexivity | destruct (f a); cbn; lia ]. Qed.

Section Remove.
Context {A : Type} (dec : forall x y : A, {x = y} + {x <> y}).

Lemma remove_NoDup x l : NoDup l -> NoDup (remove dec x l).
Proof.
  induction 1 as [| y l Hy _ IH]; cbn; [ constructor | ].
  destruct (dec x y); [ exact IH | constructor; [ | exact IH ] ].
  intros H. apply in_remove in H as [H _]. auto.
Qed.

Lemma remove_length x l : NoDup l -> length l <= S (length (remove dec x l)).
Proof.
  induction 1 as [| y l Hy _ IH]; cbn; [ lia | ].
  destruct (dec x y) as [-> | N]; [ rewrite notin_remove by exact Hy; lia | cbn; lia ].
Qed.
End Remove.

Lemma flat_map_length {A B} (f : A -> list B) n l :
  (forall a, In a l -> length (f a) = n) -> length (flat_map f l) = length l * n.
Proof.
  induction l as [| a l IH]; cbn; intros H; [ reflexivity | ].
  rewrite app_length, H, IH; auto.
Qed.

Definition pair_dec (p q : nat * nat) : {p = q} + {p <> q}.
Proof. decide equality; apply Nat.eq_dec. Defined.
